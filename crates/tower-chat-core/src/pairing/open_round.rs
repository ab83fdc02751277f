//! The last round of a call log: the calls of one answer, and their results. The round is open,
//! because more results may follow.

use super::{AnswerIds, Answers, LoggedCall, LoggedResult, RoundMatcher, Target};

/// The last round of a [`CallLog`](super::CallLog).
#[derive(Debug, Clone)]
pub(super) struct OpenRound {
    /// The index of the round's first call in the log.
    pub(super) first: usize,
    /// The index, in the log, of the first call in the last message of the answer.
    pub(super) last: usize,
    pub(super) ids: AnswerIds,
    pub(super) results: Vec<LoggedResult>,
    /// The matcher of the results; `None` before the first result, because more calls may still
    /// follow.
    matcher: Option<RoundMatcher<String>>,
    /// Whether the answer is complete, so that the next message of the model begins another answer.
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

    /// Marks the answer as complete, and creates the matcher if there is none. `calls` are all
    /// calls of the log.
    pub(super) fn begin_results(&mut self, calls: &[LoggedCall]) {
        self.is_answered = true;
        if self.matcher.is_none() {
            let calls = calls.get(self.first..).unwrap_or_default();
            let calls = calls.iter().map(|call| call.call.clone()).collect();
            self.matcher = Some(RoundMatcher::new(calls, self.last - self.first));
        }
    }

    /// Adds the next results. Returns false if earlier results now match other calls.
    pub(super) fn extend(&mut self, results: &[(Target<'_>, LoggedResult)]) -> bool {
        self.results.extend(results.iter().map(|(_, result)| *result));
        let targets = results.iter().map(|(target, _)| *target);
        self.matcher.as_mut().is_none_or(|matcher| matcher.extend(targets))
    }

    /// Iterates over the results of the round after the first `before`, each with its match.
    pub(super) fn matched_from(
        &self,
        before: usize,
    ) -> impl Iterator<Item = (Answers, LoggedResult)> {
        let answers = self.matcher.as_ref().map_or(&[][..], RoundMatcher::answers);
        let answers = answers.get(before..).unwrap_or_default().iter().copied();
        let matched = answers.zip(self.results.get(before..).unwrap_or_default().iter().copied());
        #[cfg(test)]
        let matched = matched.inspect(|_| STEPS.with(|steps| steps.set(steps.get() + 1)));
        matched
    }

    pub(super) fn has_id(&mut self, id: Option<&str>) -> bool {
        self.matcher.as_mut().is_some_and(|matcher| matcher.has_id(id))
    }
}

#[cfg(test)]
thread_local! {
    /// The number of results that this thread has read from open rounds.
    pub(super) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
