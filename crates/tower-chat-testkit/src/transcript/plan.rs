//! How a recording becomes runs.

use std::ops::Range;

use tower_chat_core::Role;

use super::recording::RecordedMessage;

/// What is still to be done of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Messages to append as they stand.
    pub(super) import: Range<usize>,
    pub(super) runs: Vec<PlannedRun>,
    /// How many messages are covered when everything is done.
    pub(super) end: usize,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedRun {
    /// Its input: places in the recording.
    pub(super) input: Range<usize>,
    /// What the leaf answers, service call by service call.
    pub(super) answers: Vec<PlannedAnswer>,
}

/// One answer of the leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedAnswer {
    /// Its place in the recording.
    pub(super) message: usize,
    pub(super) calls: Calls,
}

/// What becomes of the calls of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Calls {
    /// They are run, if there are any; the results stand right behind the answer. The last may
    /// terminate the run.
    Run { results: Range<usize>, terminate: bool },
    /// They are declared only.
    Return,
}

impl Plan {
    /// Plans what comes after the first `covered` messages.
    pub(super) fn new(messages: &[RecordedMessage], covered: usize) -> Self {
        let starts_run =
            |recorded: &RecordedMessage| !matches!(recorded.role(), Role::Assistant | Role::Tool);
        let imported = messages.iter().position(starts_run).unwrap_or(messages.len());
        let import = covered..imported.max(covered);
        let mut next = import.end;
        let mut runs = Vec::new();
        while let Some(run) = PlannedRun::next(messages, next) {
            next = run.end();
            runs.push(run);
        }
        Self { import, runs, end: next }
    }
}

impl PlannedRun {
    /// The run that begins at a place, if an answer is recorded after it.
    fn next(messages: &[RecordedMessage], from: usize) -> Option<Self> {
        let is_answer = |recorded: &RecordedMessage| recorded.role() == Role::Assistant;
        let first = from + messages.get(from..)?.iter().position(is_answer)?;
        let mut run = Self { input: from..first, answers: Vec::new() };
        let mut place = first;
        while messages.get(place).is_some_and(is_answer) {
            let answer = PlannedAnswer::at(messages, place);
            let next = answer.next(messages);
            run.answers.push(answer);
            match next {
                Some(next) => place = next,
                None => break,
            }
        }
        Some(run)
    }

    /// How many messages are stored when the run is over. Results that terminated it, and those of
    /// a batch that was returned, are the next run's input.
    pub(super) fn end(&self) -> usize {
        self.answers.last().map_or(self.input.end, |answer| answer.message + 1)
    }
}

impl PlannedAnswer {
    fn at(messages: &[RecordedMessage], message: usize) -> Self {
        let after = messages.get(message + 1..).unwrap_or_default();
        let is_result = |recorded: &&RecordedMessage| {
            recorded.answers.is_some_and(|answers| answers.message == message)
        };
        let results = after.iter().take_while(is_result).count();
        let calls = messages.get(message).map_or(0, |asking| asking.message.calls().count());
        let calls = if results < calls {
            Calls::Return
        } else {
            let follows = after.get(results).map(RecordedMessage::role);
            let terminate = calls > 0 && follows != Some(Role::Assistant);
            Calls::Run { results: message + 1..message + 1 + results, terminate }
        };
        Self { message, calls }
    }

    /// The place of the next answer of the same run, if the run goes on.
    fn next(&self, messages: &[RecordedMessage]) -> Option<usize> {
        match &self.calls {
            Calls::Run { results, terminate: false } if !results.is_empty() => {
                (results.end < messages.len()).then_some(results.end)
            }
            Calls::Run { .. } | Calls::Return => None,
        }
    }
}
