//! Pruning: deleting the oldest runs of a conversation.

use std::{collections::HashMap, time::SystemTime};

use super::{
    Head, SequencePosition, StoreError,
    author::{RecordedResult, ToolRecord},
};
use crate::{ConversationKey, RunId, ToolStatus};

/// The amount of a conversation that a [`prune`](super::Maintenance::prune) keeps.
///
/// More than this amount may remain, because a run is never divided, and the last run is never
/// deleted.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::store::Keep;
///
/// let newest = Keep::Messages(200);
/// let of_the_month = Keep::Since(SystemTime::now() - Duration::from_secs(30 * 24 * 3600));
/// # let _ = (newest, of_the_month);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// Keeps this many of the newest messages. If the oldest of them is not the first message of
    /// its run, the earlier messages of that run are kept too.
    Messages(u64),
    /// Keeps the first run that was created at this time or later, and every run after it. The
    /// store reads the time of creation from the id of the run
    /// ([`RunId::made_at`](crate::RunId::made_at)). The store also keeps a run whose id contains no
    /// time.
    Since(SystemTime),
    /// Like [`Messages`](Self::Messages), for requests of an encrypting wrapper
    /// ([`Write::sealed`](super::author::Write::sealed)).
    SealedMessages(u64),
    /// Like [`Since`](Self::Since), for requests of an encrypting wrapper.
    SealedSince(SystemTime),
}

impl Keep {
    /// Marks the request as one of an encrypting wrapper, as
    /// [`Write::sealed`](super::author::Write::sealed) marks a write.
    #[must_use]
    pub fn sealed(self) -> Self {
        match self {
            Self::Messages(count) | Self::SealedMessages(count) => Self::SealedMessages(count),
            Self::Since(time) | Self::SealedSince(time) => Self::SealedSince(time),
        }
    }

    /// Returns whether the amount is marked as [sealed](Self::sealed).
    pub fn is_sealed(self) -> bool {
        matches!(self, Self::SealedMessages(_) | Self::SealedSince(_))
    }
}

/// The amount that a [`prune`](super::Maintenance::prune) deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of deleted runs.
    pub runs: u64,
    /// The number of messages of these runs.
    pub messages: u64,
    /// The first call that waits for a decision or a result, if it prevented the deletion of more
    /// runs. Until this call has a result, or its row in the record shows that it has ended, no
    /// prune deletes its run or a later run.
    pub held_back_by: Option<SequencePosition>,
}

/// Decides which runs of a conversation a store deletes. The store passes the visible messages to
/// [`see_message`](Self::see_message) and the record to [`see_record`](Self::see_record). The store
/// then deletes all messages up to the [cut](Self::cut).
///
/// The cut is between two messages. No run has messages on both sides of it. If a call is before
/// the cut, its result is before the cut too, and the call waits neither for a decision nor for a
/// result.
///
/// If a message is missing or a number is out of range, [`cut`](Self::cut) fails, because the
/// damaged part may belong to a run that must be kept.
///
/// ```
/// use tower_chat_core::{ConversationKey, RunId, store::{Head, Keep, Revision, author::Pruning}};
/// let key = ConversationKey::new("alice", "support");
/// let head = Head::new(Revision { incarnation: 7, sequence: 5 });
/// let mut pruning = Pruning::new(&key, &head, Keep::Messages(3));
/// let [first, second, third] = [(); 3].map(|()| RunId::new());
/// for (sequence, run) in (1..).zip([first, first, second, second, third]) {
///     pruning.see_message(sequence, run);
/// }
/// let cut = pruning.cut()?;
/// assert_eq!(cut.last_sequence, 2); // the second run is kept as a whole
/// assert_eq!((cut.pruned.runs, cut.pruned.messages), (1, 2));
/// # Ok::<(), tower_chat_core::store::StoreError>(())
/// ```
#[derive(Debug)]
pub struct Pruning {
    key: ConversationKey,
    keep: Keep,
    /// The sequence number of the last message that an earlier prune deleted.
    pruned: u64,
    /// The sequence number of the last message that the store has passed.
    seen: u64,
    /// The sequence number of the conversation's last message.
    last: u64,
    /// The first damage that was found.
    damage: Option<StoreError>,
    /// The runs, in the order of their first messages.
    runs: Vec<Extent>,
    /// The index of each run in `runs`.
    positions: HashMap<RunId, usize>,
    /// For each call whose result is in a later message, the sequence number of the message with
    /// the call, and that of the message with the result.
    answered: Vec<(u64, u64)>,
    /// The first call that waits for a decision or a result.
    waiting: Option<SequencePosition>,
}

/// The position of a cut in a conversation, and the number of runs and messages before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The sequence number of the last message to delete; 0 if all messages are kept.
    pub last_sequence: u64,
    /// The runs and messages that the store deletes.
    pub pruned: Pruned,
}

/// The sequence numbers of the first and the last message of a run.
#[derive(Debug)]
struct Extent {
    run: RunId,
    first: u64,
    last: u64,
}

impl Pruning {
    /// Creates the decision about a conversation with this head.
    pub fn new(key: &ConversationKey, head: &Head, keep: Keep) -> Self {
        Self {
            key: key.clone(),
            keep,
            pruned: head.pruned,
            seen: head.pruned,
            last: head.revision.sequence,
            damage: head.check_range(key, super::author::LAST_SEQUENCE).err(),
            runs: Vec::new(),
            positions: HashMap::new(),
            answered: Vec::new(),
            waiting: None,
        }
    }

    /// Adds the next message. The store passes each message once, in order.
    pub fn see_message(&mut self, sequence: u64, run: RunId) {
        let expected = self.seen.saturating_add(1);
        if sequence != expected || sequence > self.last {
            let missing = expected.min(self.last.saturating_add(1));
            return self
                .damaged(format!("message {sequence} is stored in place of message {missing}"));
        }
        self.seen = sequence;
        if let Some(last) = self.runs.last_mut().filter(|last| last.run == run) {
            last.last = sequence;
            return;
        }
        let position = *self.positions.entry(run).or_insert(self.runs.len());
        match self.runs.get_mut(position) {
            Some(extent) => extent.last = sequence,
            None => self.runs.push(Extent { run, first: sequence, last: sequence }),
        }
    }

    /// Adds a row of the record, in any order.
    pub fn see_record(&mut self, record: &ToolRecord) {
        let result = match record.result {
            RecordedResult::InMessage(position) => Some(position.sequence),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        self.see_call(record.call, record.status, result);
    }

    /// Adds a call from a row of the record, with its status and the sequence number of the message
    /// that contains its result.
    pub fn see_call(&mut self, call: SequencePosition, status: ToolStatus, result: Option<u64>) {
        if call.sequence <= self.pruned || call.sequence > self.last {
            let SequencePosition { sequence, index } = call;
            return self.damaged(format!(
                "the record has call {index} of message {sequence}, which does not exist"
            ));
        }
        if matches!(
            status,
            ToolStatus::Pending | ToolStatus::PendingApproval | ToolStatus::Returned
        ) {
            self.waiting = Some(self.waiting.map_or(call, |first| first.min(call)));
        }
        if let Some(result) = result.filter(|result| *result > call.sequence) {
            self.answered.push((call.sequence, result));
        }
    }

    fn damaged(&mut self, what: String) {
        let key = &self.key;
        self.damage.get_or_insert_with(|| StoreError::Corrupt {
            reason: format!(
                "conversation {key} was not pruned, because {what}: restore it from a backup"
            ),
        });
    }

    /// Returns the cut, after the store has passed all messages and rows.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`], if a message is missing or a number is out of range. The store must
    /// then delete nothing.
    pub fn cut(mut self) -> Result<Cut, StoreError> {
        if self.damage.is_none() && self.seen != self.last {
            self.damaged(format!("message {} is missing", self.seen.saturating_add(1)));
        }
        match self.damage.take() {
            Some(damage) => Err(damage),
            None => Ok(self.cut_of_whole()),
        }
    }

    /// Computes the cut after the store has passed all messages and no damage was found.
    fn cut_of_whole(mut self) -> Cut {
        let last = self.runs.iter().max_by_key(|run| run.last);
        let Some((end, last_run)) = last.map(|run| (run.last, run.first)) else {
            return Cut { last_sequence: 0, pruned: Pruned::default() };
        };
        let wanted = match self.keep {
            Keep::Messages(count) | Keep::SealedMessages(count) => end.saturating_sub(count),
            Keep::Since(time) | Keep::SealedSince(time) => {
                let is_kept = |run: &&Extent| run.run.made_at().is_none_or(|made| made >= time);
                let kept = self.runs.iter().filter(is_kept).map(|run| run.first).min();
                kept.map_or(end, |first| first.saturating_sub(1))
            }
        };
        let wanted = wanted.min(last_run.saturating_sub(1));
        let mut whole = std::mem::take(&mut self.answered);
        whole.extend(self.runs.iter().map(|run| (run.first, run.last)));
        whole.sort_unstable_by_key(|(_, last)| std::cmp::Reverse(*last));
        let without_waiting = cut_dividing_none(&whole, wanted);
        let waiting = self.waiting.filter(|call| call.sequence <= without_waiting);
        let last_sequence = match waiting {
            Some(call) => cut_dividing_none(&whole, call.sequence.saturating_sub(1)),
            None => without_waiting,
        };
        let mut pruned = Pruned { held_back_by: waiting, ..Pruned::default() };
        let first = self.runs.iter().map(|run| run.first).min().unwrap_or_default();
        pruned.runs = self.runs.iter().filter(|run| run.last <= last_sequence).count() as u64;
        if pruned.runs == 0 {
            return Cut { last_sequence: 0, pruned };
        }
        pruned.messages = last_sequence.saturating_sub(first).saturating_add(1);
        Cut { last_sequence, pruned }
    }
}

/// Returns the largest sequence number, at most `wanted`, after which a cut divides none of these
/// ranges of sequence numbers. The ranges are sorted by their last number, in descending order.
pub(super) fn cut_dividing_none(whole: &[(u64, u64)], wanted: u64) -> u64 {
    let mut cut = wanted;
    for (first, last) in whole {
        if *last <= cut {
            break;
        }
        if *first <= cut {
            cut = first.saturating_sub(1);
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::store::Revision;

    /// Cuts a conversation. `runs` contains the index of the run of each message.
    fn cut(keep: Keep, runs: &[usize], calls: &[(u64, ToolStatus, Option<u64>)]) -> Cut {
        cut_from(1, keep, runs, calls)
    }

    fn cut_from(
        first: u64,
        keep: Keep,
        runs: &[usize],
        calls: &[(u64, ToolStatus, Option<u64>)],
    ) -> Cut {
        let ids: Vec<RunId> = (0..10).map(run_made_at).collect();
        let last = first - 1 + runs.len() as u64;
        let mut pruning = pruning(first - 1, last, keep);
        for (sequence, run) in (first..).zip(runs) {
            pruning.see_message(sequence, ids[*run]);
        }
        for (sequence, status, result) in calls {
            pruning.see_call(SequencePosition { sequence: *sequence, index: 0 }, *status, *result);
        }
        pruning.cut().unwrap()
    }

    fn pruning(pruned: u64, last: u64, keep: Keep) -> Pruning {
        let head = Head::new(Revision { incarnation: 1, sequence: last }).with_pruned(pruned);
        Pruning::new(&ConversationKey::new("tests", "c"), &head, keep)
    }

    /// Creates the id of a run that was made at this second since 1970.
    fn run_made_at(second: u64) -> RunId {
        let mut bytes = RunId::new().to_bytes();
        bytes[..6].copy_from_slice(&(second * 1000).to_be_bytes()[2..]);
        RunId::from_bytes(bytes)
    }

    fn since(second: u64) -> Keep {
        Keep::Since(SystemTime::UNIX_EPOCH + Duration::from_secs(second))
    }

    #[test]
    fn a_cut_is_rounded_up_to_whole_runs_and_leaves_the_last() {
        let runs = [0, 0, 1, 1, 1, 2];
        for (count, last) in [(0, 5), (1, 5), (2, 2), (3, 2), (4, 2), (5, 0), (6, 0), (u64::MAX, 0)]
        {
            assert_eq!(cut(Keep::Messages(count), &runs, &[]).last_sequence, last, "{count}");
        }
        let all = cut(Keep::Messages(0), &runs, &[]).pruned;
        assert_eq!((all.runs, all.messages, all.held_back_by), (2, 5, None));
        assert_eq!(cut(Keep::Messages(0), &[], &[]).pruned, Pruned::default());
        assert_eq!(cut(Keep::Messages(0), &[0, 0], &[]).last_sequence, 0);
    }

    #[test]
    fn a_run_that_was_continued_later_is_one_run() {
        assert_eq!(cut(Keep::Messages(1), &[0, 1, 0, 2, 3], &[]).last_sequence, 4);
        assert_eq!(cut(Keep::Messages(3), &[0, 1, 0, 2, 3], &[]).last_sequence, 0);
        assert_eq!(cut(Keep::Messages(0), &[0, 1, 1, 0], &[]).last_sequence, 0);
        let cut = cut(Keep::Messages(1), &[5, 0, 1, 2, 1, 0, 3], &[]);
        assert_eq!((cut.last_sequence, cut.pruned.runs), (6, 4));
    }

    #[test]
    fn runs_are_kept_from_the_first_on_that_is_new_enough() {
        let runs = [1, 1, 4, 2, 5, 6];
        for (second, last) in [(0, 0), (1, 0), (2, 2), (3, 2), (4, 2), (5, 4), (6, 5), (9, 5)] {
            assert_eq!(cut(since(second), &runs, &[]).last_sequence, last, "{second}");
        }
        let mut pruning = pruning(0, 3, since(9));
        pruning.see_message(1, run_made_at(1));
        pruning.see_message(2, RunId::from_bytes([0; 16]));
        pruning.see_message(3, run_made_at(1));
        assert_eq!(
            pruning.cut().unwrap().last_sequence,
            1,
            "the time of the second run is unknown"
        );
    }

    #[test]
    fn a_call_stays_with_its_result() {
        let runs = [0, 1, 2, 3];
        let answered = |call, result| [(call, ToolStatus::Ok, Some(result))];
        assert_eq!(cut(Keep::Messages(1), &runs, &answered(1, 2)).last_sequence, 3);
        assert_eq!(cut(Keep::Messages(1), &runs, &answered(2, 4)).last_sequence, 1);
        assert_eq!(cut(Keep::Messages(1), &runs, &answered(1, 4)).last_sequence, 0);
        assert_eq!(cut(Keep::Messages(1), &runs, &answered(1, 4)).pruned, Pruned::default());
    }

    #[test]
    fn a_gathered_write_keeps_later_writes_behind_it() {
        let runs = [0, 0, 1, 1, 2, 3];
        for status in ToolStatus::ALL {
            let waits = matches!(
                status,
                ToolStatus::Pending | ToolStatus::PendingApproval | ToolStatus::Returned
            );
            let cut = cut(Keep::Messages(1), &runs, &[(4, status, None), (5, status, None)]);
            assert_eq!(cut.last_sequence, if waits { 2 } else { 5 }, "{status}");
            let call = SequencePosition { sequence: 4, index: 0 };
            assert_eq!(cut.pruned.held_back_by, waits.then_some(call));
        }
        let unaffected = cut(Keep::Messages(4), &runs, &[(4, ToolStatus::Pending, None)]);
        assert_eq!((unaffected.last_sequence, unaffected.pruned.held_back_by), (2, None));
    }

    #[test]
    fn numbers_continue_after_an_earlier_cut() {
        let cut = cut_from(11, Keep::Messages(2), &[0, 0, 1, 1], &[]);
        assert_eq!((cut.last_sequence, cut.pruned.messages), (12, 2));
        assert_eq!(cut_from(11, Keep::Messages(2), &[1, 1], &[]).last_sequence, 0);
    }

    #[test]
    fn a_prune_refuses_numbers_out_of_range_and_missing_messages() {
        let runs: Vec<RunId> = (0..4).map(run_made_at).collect();
        // In each row: the number of pruned messages, the last sequence number, and the sequence
        // numbers of the messages that the store passes.
        let damaged: [(u64, u64, &[u64]); 10] = [
            (0, 3, &[0, 1, 2]),
            (0, 3, &[0, 1, 2, 3]),
            (0, 3, &[1, 3]),
            (0, 3, &[1, 2]),
            (0, 3, &[]),
            (0, 3, &[1, 2, 3, 4]),
            (0, 3, &[1, 2, 3, u64::MAX]),
            (u64::MAX, u64::MAX, &[]),
            (u64::MAX - 1, u64::MAX, &[u64::MAX]),
            (5, 3, &[1, 2, 3]),
        ];
        for (pruned, last, messages) in damaged {
            for keep in [Keep::Messages(0), Keep::Messages(u64::MAX), since(9)] {
                let mut pruning = pruning(pruned, last, keep);
                for (sequence, run) in messages.iter().zip(&runs) {
                    pruning.see_message(*sequence, *run);
                }
                let error = pruning.cut().unwrap_err();
                assert!(matches!(error, StoreError::Corrupt { .. }), "{messages:?}: {error:?}");
            }
        }
        for sequence in [0, 2, 6, u64::MAX] {
            let mut pruning = pruning(2, 5, Keep::Messages(1));
            for (sequence, run) in (3..).zip(&runs[..3]) {
                pruning.see_message(sequence, *run);
            }
            let call = SequencePosition { sequence, index: u32::MAX };
            pruning.see_call(call, ToolStatus::Pending, Some(u64::MAX));
            let error = pruning.cut().unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{sequence}: {error:?}");
        }
    }
}
