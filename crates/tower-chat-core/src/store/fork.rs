//! Copies of the beginnings of conversations. A copy ends between two turns.

use std::collections::HashMap;

use super::{
    Head, Revision,
    author::{RecordedResult, ToolRecord},
    prune::cut_dividing_none,
};
use crate::RunId;

/// The outcome of a [`fork_at`](super::Maintenance::fork_at).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fork {
    /// The revision of the copy; [`Revision::ABSENT`] if the original does not exist.
    pub revision: Revision,
    /// The sequence number, in the original, of the last message that was copied. If no message was
    /// copied, the number before the first message of the original.
    pub position: u64,
}

impl Fork {
    /// The outcome if there is nothing to copy.
    pub const ABSENT: Self = Self { revision: Revision::ABSENT, position: 0 };

    /// Creates the outcome of a copy with this revision, whose last message has this number in the
    /// original.
    pub fn new(revision: Revision, position: u64) -> Self {
        Self { revision, position }
    }
}

/// Decides at which message a copy of a conversation ends. The store passes the visible messages
/// and the record, and copies the messages up to [`ForkEnd::position`].
///
/// The end is between two turns: no run has messages on both sides of it, and no call before it has
/// its result after it. A run that answers a call of an earlier run therefore stays together with
/// that run.
///
/// ```
/// use tower_chat_core::{RunId, store::{Head, Revision, author::Forking}};
/// let head = Head::new(Revision { incarnation: 7, sequence: 5 });
/// let mut forking = Forking::new(&head, Some(4));
/// let [first, second] = [(); 2].map(|()| RunId::new());
/// for (sequence, run) in (1..).zip([first, first, second, second, second]) {
///     forking.see_message(sequence, run);
/// }
/// let end = forking.end();
/// assert_eq!(end.position, 2); // message 4 is in the second turn
/// assert_eq!((end.runs_after, end.last_run), (1, Some(first)));
/// ```
#[derive(Debug)]
pub struct Forking {
    pruned: u64,
    /// The largest possible end.
    last: u64,
    /// The first and the last message of each run.
    runs: HashMap<RunId, (u64, u64)>,
    /// The messages of a call and of its result, if the result is in a later message.
    answered: Vec<(u64, u64)>,
}

/// The end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForkEnd {
    /// The sequence number of the last message to copy. If no message is copied, the number of
    /// pruned messages.
    pub position: u64,
    /// The number of runs whose messages are all after the position.
    pub runs_after: u64,
    /// The run of the last message to copy.
    pub last_run: Option<RunId>,
}

impl Forking {
    /// Creates the decision for a conversation with this head. The copy contains only messages
    /// before the sequence number `before`. `None` allows all visible messages.
    pub fn new(head: &Head, before: Option<u64>) -> Self {
        let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
        let last = before.map_or(visible, |before| before.saturating_sub(1).min(visible));
        let last = last.max(head.pruned);
        Self { pruned: head.pruned, last, runs: HashMap::new(), answered: Vec::new() }
    }

    /// Adds a visible message, in any order.
    pub fn see_message(&mut self, sequence: u64, run: RunId) {
        let (first, last) = self.runs.entry(run).or_insert((sequence, sequence));
        (*first, *last) = ((*first).min(sequence), (*last).max(sequence));
    }

    /// Adds a row of the record, in any order.
    pub fn see_record(&mut self, record: &ToolRecord) {
        if let RecordedResult::InMessage(result) = record.result {
            self.see_result(record.call.sequence, result.sequence);
        }
    }

    /// Adds a call that has a result, by the sequence numbers of their messages.
    pub fn see_result(&mut self, call: u64, result: u64) {
        if result > call {
            self.answered.push((call, result));
        }
    }

    /// Returns the end, after the store has passed all messages and rows.
    pub fn end(self) -> ForkEnd {
        let Self { pruned, last, runs, answered: mut whole } = self;
        whole.extend(runs.values());
        whole.sort_unstable_by_key(|(_, last)| std::cmp::Reverse(*last));
        let position = cut_dividing_none(&whole, last).max(pruned);
        let copied = runs.iter().filter(|(_, (first, _))| *first <= position);
        let last_run = copied.max_by_key(|(_, (_, last))| *last).map(|(run, _)| *run);
        let runs_after = runs.values().filter(|(first, _)| *first > position).count() as u64;
        ForkEnd { position, runs_after, last_run }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the end of a copy. `runs` has the number of the run of each message.
    fn end(before: Option<u64>, pruned: u64, runs: &[u8], results: &[(u64, u64)]) -> ForkEnd {
        let sequence = pruned + runs.len() as u64;
        let head = Head::new(Revision { incarnation: 1, sequence }).with_pruned(pruned);
        let mut forking = Forking::new(&head, before);
        for (sequence, run) in (pruned + 1..).zip(runs) {
            forking.see_message(sequence, RunId::from_bytes([*run; 16]));
        }
        results.iter().for_each(|(call, result)| forking.see_result(*call, *result));
        forking.end()
    }

    #[test]
    fn a_copy_ends_before_the_turn_of_a_message() {
        let runs = [1, 1, 2, 2, 2, 3];
        for (before, position) in [
            (None, 6),
            (Some(u64::MAX), 6),
            (Some(7), 6),
            (Some(6), 5),
            (Some(5), 2),
            (Some(4), 2),
            (Some(3), 2),
            (Some(2), 0),
            (Some(1), 0),
            (Some(0), 0),
        ] {
            assert_eq!(end(before, 0, &runs, &[]).position, position, "{before:?}");
        }
        let middle = end(Some(4), 0, &runs, &[]);
        assert_eq!((middle.runs_after, middle.last_run), (2, Some(RunId::from_bytes([1; 16]))));
        let nothing = end(Some(1), 0, &runs, &[]);
        assert_eq!((nothing.runs_after, nothing.last_run), (3, None));
    }

    #[test]
    fn a_call_is_copied_with_its_result() {
        // The second run answers the call of the first one, after an approval.
        let runs = [1, 1, 2, 2, 3, 4];
        assert_eq!(end(Some(3), 0, &runs, &[(2, 3)]).position, 0);
        assert_eq!(end(Some(4), 0, &runs, &[(2, 3)]).position, 0);
        assert_eq!(end(Some(5), 0, &runs, &[(2, 3)]).position, 4);
        // The result of a call of the second run arrived in the last run.
        assert_eq!(end(Some(6), 0, &runs, &[(2, 3), (4, 6)]).position, 0);
        assert_eq!(end(None, 0, &runs, &[(2, 3), (4, 6)]).position, 6);
        // The result is not visible yet.
        assert_eq!(end(None, 0, &runs, &[(5, 9)]).position, 4);
    }

    #[test]
    fn a_run_that_was_continued_later_is_not_divided() {
        let runs = [1, 2, 1, 3];
        assert_eq!(end(Some(3), 0, &runs, &[]).position, 0);
        assert_eq!(end(Some(4), 0, &runs, &[]).position, 3);
        assert_eq!(end(Some(4), 0, &runs, &[]).last_run, Some(RunId::from_bytes([1; 16])));
    }

    #[test]
    fn a_pruned_conversation_keeps_its_numbers() {
        for (before, position) in [(Some(3), 10), (Some(11), 10), (Some(13), 12), (None, 13)] {
            assert_eq!(end(before, 10, &[1, 1, 2], &[]).position, position, "{before:?}");
        }
    }
}
