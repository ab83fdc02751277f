//! Plans the runs of a recording.

use std::ops::Range;

use tower_chat::Role;

use super::recording::RecordedMessage;

/// The remaining runs of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// The positions of the messages to append unchanged.
    pub(super) import: Range<usize>,
    pub(super) runs: Vec<PlannedRun>,
    pub(super) end: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedRun {
    /// The input of the run: positions in the recording.
    pub(super) input: Range<usize>,
    /// The answers of the model client, one for each service call.
    pub(super) answers: Vec<PlannedAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedAnswer {
    /// The position of the answer in the recording.
    pub(super) message: usize,
    pub(super) calls: Calls,
}

/// How the calls of an answer are executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Calls {
    /// The tools run, and return the recorded results, which directly follow the answer. If
    /// `terminate` is set, the last tool ends the run.
    Run { results: Range<usize>, terminate: bool },
    /// The loop cannot execute the tools, and returns the calls to the caller.
    Return,
}

impl Plan {
    /// Plans the runs after the first `covered` messages, which are already stored.
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
    /// Returns the run that begins at a position, if an answer follows.
    fn next(messages: &[RecordedMessage], from: usize) -> Option<Self> {
        let is_answer = |recorded: &RecordedMessage| recorded.role() == Role::Assistant;
        let first = from + messages.get(from..)?.iter().position(is_answer)?;
        let mut run = Self { input: from..first, answers: Vec::new() };
        let mut position = first;
        while messages.get(position).is_some_and(is_answer) {
            let answer = PlannedAnswer::at(messages, position);
            let next = answer.next(messages);
            run.answers.push(answer);
            match next {
                Some(next) => position = next,
                None => break,
            }
        }
        Some(run)
    }

    /// Returns the number of recorded messages that are stored when the run has ended. The results
    /// of the last answer's calls are not among them: they are input of the next run.
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

    /// Returns the position of the next answer of the same run, if the run continues.
    fn next(&self, messages: &[RecordedMessage]) -> Option<usize> {
        match &self.calls {
            Calls::Run { results, terminate: false } if !results.is_empty() => {
                (results.end < messages.len()).then_some(results.end)
            }
            Calls::Run { .. } | Calls::Return => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::Recording, *};

    fn user() -> Value {
        json!({"role": "user", "content": "go"})
    }

    fn answer(ids: &[&str]) -> Value {
        let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}});
        match ids {
            [] => json!({"role": "assistant", "content": "done"}),
            ids => json!({"role": "assistant", "content": null,
                "tool_calls": ids.iter().map(call).collect::<Vec<_>>()}),
        }
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "found"})
    }

    fn plan(messages: &[Value], covered: usize) -> Plan {
        let recording = Recording::read(&json!({"id": "x", "messages": messages}).to_string());
        Plan::new(recording.unwrap().messages(), covered)
    }

    fn run(input: Range<usize>, answers: &[(usize, Calls)]) -> PlannedRun {
        let answer = |(message, calls): &(usize, Calls)| PlannedAnswer {
            message: *message,
            calls: calls.clone(),
        };
        PlannedRun { input, answers: answers.iter().map(answer).collect() }
    }

    fn runs(results: Range<usize>) -> Calls {
        Calls::Run { results, terminate: false }
    }

    fn ends(results: Range<usize>) -> Calls {
        Calls::Run { results, terminate: true }
    }

    #[test]
    fn a_run_continues_if_an_answer_follows_the_results_of_its_calls() {
        let messages = [user(), answer(&["1", "2"]), result("1"), result("2"), answer(&[]), user()];
        let planned = plan(&messages, 0);
        assert_eq!(planned.runs, [run(0..1, &[(1, runs(2..4)), (4, runs(5..5))])]);
        assert_eq!((planned.import, planned.end), (0..0, 5));
    }

    #[test]
    fn results_before_a_user_message_end_the_run_and_are_input_of_the_next_run() {
        let messages = [user(), answer(&["1"]), result("1"), user(), answer(&[])];
        let planned = plan(&messages, 0).runs;
        assert_eq!(planned, [run(0..1, &[(1, ends(2..3))]), run(2..4, &[(4, runs(5..5))])]);
    }

    #[test]
    fn results_at_the_end_of_a_recording_end_the_run_and_are_not_input() {
        let planned = plan(&[user(), answer(&["1"]), result("1")], 0);
        assert_eq!((planned.runs, planned.end), (vec![run(0..1, &[(1, ends(2..3))])], 2));
    }

    #[test]
    fn a_batch_with_a_missing_result_is_returned_to_the_caller_as_a_whole() {
        let planned = plan(&[user(), answer(&["1", "2"]), result("2"), answer(&[])], 0).runs;
        assert_eq!(planned, [run(0..1, &[(1, Calls::Return)]), run(2..3, &[(3, runs(4..4))])]);
    }

    #[test]
    fn a_result_without_a_call_after_a_batch_is_input_of_the_next_run() {
        let messages = [user(), answer(&["1"]), result("1"), result("9"), answer(&[])];
        let planned = plan(&messages, 0).runs;
        assert_eq!(planned, [run(0..1, &[(1, ends(2..3))]), run(2..4, &[(4, runs(5..5))])]);
    }

    #[test]
    fn messages_before_the_first_input_are_imported() {
        let messages = [answer(&["1"]), result("1"), answer(&[]), user(), answer(&[])];
        let planned = plan(&messages, 0);
        assert_eq!(planned.import, 0..3);
        assert_eq!(planned.runs, [run(3..4, &[(4, runs(5..5))])]);
        assert_eq!(plan(&messages[..3], 0).import, 0..3);
        assert_eq!(plan(&messages, 3).import, 3..3);
    }

    #[test]
    fn stored_messages_are_not_part_of_the_plan() {
        let messages = [user(), answer(&["1"]), result("1"), answer(&[]), user(), answer(&[])];
        let rest = run(4..5, &[(5, runs(6..6))]);
        let planned = |covered| plan(&messages, covered).runs;
        assert_eq!(planned(0).len(), 2);
        assert_eq!(planned(1)[0], run(1..1, &[(1, runs(2..3)), (3, runs(4..4))]));
        assert_eq!(planned(2), [run(2..3, &[(3, runs(4..4))]), rest.clone()]);
        assert_eq!(planned(3), [run(3..3, &[(3, runs(4..4))]), rest.clone()]);
        assert_eq!(planned(4), [rest]);
        assert_eq!(planned(5), [run(5..5, &[(5, runs(6..6))])]);
        assert_eq!(planned(6), []);
    }
}
