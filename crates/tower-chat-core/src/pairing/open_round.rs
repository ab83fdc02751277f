//! The round of a call log whose results follow.

use super::{AnswerIds, Answers, LoggedCall, LoggedResult, RoundMatcher, Target};

/// The round of a [`CallLog`](super::CallLog) whose results follow.
#[derive(Debug, Clone)]
pub(super) struct OpenRound {
    /// The index of its first call among all.
    pub(super) first: usize,
    /// The index of the first call of the last message of the answer.
    pub(super) last: usize,
    pub(super) ids: AnswerIds,
    /// Its results so far.
    pub(super) results: Vec<LoggedResult>,
    /// Which calls they answer; `None` before the first, when more calls may follow.
    matcher: Option<RoundMatcher<String>>,
    /// No more messages belong to the answer.
    pub(super) is_answered: bool,
}

impl OpenRound {
    pub(super) fn at(first: usize) -> Self {
        Self {
            first,
            last: first,
            ids: AnswerIds::default(),
            results: Vec::new(),
            matcher: None,
            is_answered: false,
        }
    }

    /// No more calls belong to the round, whose calls are the last of these.
    pub(super) fn begin_results(&mut self, calls: &[LoggedCall]) {
        self.is_answered = true;
        if self.matcher.is_none() {
            let calls = calls.get(self.first..).unwrap_or_default();
            let calls = calls.iter().map(|call| call.call.clone()).collect();
            self.matcher = Some(RoundMatcher::new(calls, self.last - self.first));
        }
    }

    /// Takes the next results. `false` if with them results before are the answers of other calls.
    pub(super) fn extend(&mut self, results: &[(Target<'_>, LoggedResult)]) -> bool {
        self.results.extend(results.iter().map(|(_, result)| *result));
        let targets = results.iter().map(|(target, _)| *target);
        self.matcher.as_mut().is_none_or(|matcher| matcher.extend(targets))
    }

    /// Its results, each with what it is to the calls of the round.
    pub(super) fn matched(&self) -> impl Iterator<Item = (Answers, LoggedResult)> {
        let answers = self.matcher.iter().flat_map(|matcher| matcher.answers().iter().copied());
        answers.zip(self.results.iter().copied())
    }

    pub(super) fn has_id(&mut self, id: Option<&str>) -> bool {
        self.matcher.as_mut().is_some_and(|matcher| matcher.has_id(id))
    }
}
