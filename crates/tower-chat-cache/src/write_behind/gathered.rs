//! The gathered writes, which are acknowledged and not stored, and the submissions queued behind
//! them.

mod work;

use std::{
    collections::{HashMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tower_chat_core::{
    ConversationKey,
    store::{
        Revision, StoreError,
        author::{AppendError, Slot, Ticket, TicketSender, Write},
    },
    telemetry::GaugeGuard,
};

use crate::telemetry;

/// A duration that no process outlives and that can be added to every clock.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The maximum number of conversations without gathered writes whose revision is remembered.
const KNOWN_CONVERSATIONS: usize = 10_000;

pub(super) type Outcome = Result<Revision, AppendError>;

/// Resolves when a conversation has no gathered writes, or one of them has failed.
pub(super) type Unsettled = oneshot::Receiver<Result<(), StoreError>>;

/// The gathered writes and the queued submissions.
///
/// A submission that cannot be gathered, and must not overtake a gathered write, waits in a queue
/// until all gathered writes are stored. While the queue is not empty, no write is gathered.
#[derive(Default)]
pub(super) struct Gathered {
    conversations: HashMap<ConversationKey, Waiting>,
    row: VecDeque<InRow>,
    /// Whether the queue was submitted and its outcomes are unknown.
    is_row_submitted: bool,
    row_waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
    known: HashMap<ConversationKey, Known>,
    lost: HashMap<ConversationKey, StoreError>,
    submissions: u64,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Gathering,
    /// The store is closed: writes are passed on instead of gathered.
    Closed,
    /// The last handle of the store was dropped.
    Ending,
}

/// The gathered writes of a conversation.
struct Waiting {
    /// The writes that are not being stored now.
    writes: Vec<Write>,
    slots: Vec<Slot>,
    /// The number of writes, including those that are being stored.
    unstored: usize,
    /// Counts them in a gauge.
    counted: Option<GaugeGuard>,
    /// The revision after all of them.
    result: Revision,
    due: Instant,
    failures: u32,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// A submission in the queue.
pub(super) struct InRow {
    pub(super) slot: Slot,
    pub(super) writes: Vec<Write>,
    pub(super) outcome: TicketSender,
}

/// The revision after the last submission, if it is known.
struct Known {
    revision: Option<Revision>,
    submission: u64,
}

/// A submission that is passed to the inner store directly.
pub(super) struct Submission {
    keys: Vec<ConversationKey>,
    number: u64,
    /// Whether it belongs to an open run, so that only that run can continue from it.
    is_staged: bool,
}

/// The decision on a submission.
pub(super) enum Admission {
    /// The writes were gathered.
    Acknowledged { revision: Revision, is_new: bool },
    /// The submission waits in the queue.
    InRow(Ticket),
    /// The writes before it were lost.
    Refused(StoreError),
    /// The submission is passed to the inner store now.
    Direct { slot: Slot, writes: Vec<Write>, submission: Submission },
}

/// The next work of the writer thread.
pub(super) enum Work {
    /// Store the gathered writes of these conversations.
    Store(Vec<Due>),
    /// Submit the queued submissions, in this order.
    Submit(Vec<InRow>),
    /// Wait for this time, or until woken.
    Wait(Option<Duration>),
    /// End the thread.
    End,
}

/// The gathered writes of a conversation that are being stored.
pub(super) struct Due {
    pub(super) key: ConversationKey,
    pub(super) slots: Vec<Slot>,
    pub(super) writes: Vec<Write>,
}

impl Gathered {
    /// Decides on a submission.
    pub(super) fn take(
        &mut self,
        slot: Slot,
        writes: Vec<Write>,
        can_gather: bool,
        max_delay: Duration,
    ) -> Admission {
        if let Some(error) = writes.iter().find_map(|write| self.lost.remove(write.key())) {
            return Admission::Refused(error);
        }
        let may_gather = can_gather && self.phase == Phase::Gathering && !self.has_row();
        if let Some((key, revision)) = self.goes_on(&writes).filter(|_| may_gather) {
            let is_new = self.gather(&key, slot, writes, revision, max_delay);
            return Admission::Acknowledged { revision, is_new };
        }
        if self.has_row() || writes.iter().any(|it| self.conversations.contains_key(it.key())) {
            let (outcome, ticket) = Ticket::channel();
            self.row.push_back(InRow { slot, writes, outcome });
            return Admission::InRow(ticket);
        }
        self.submissions += 1;
        let number = self.submissions;
        let mut keys: Vec<ConversationKey> = Vec::new();
        for write in &writes {
            if !keys.contains(write.key()) {
                keys.push(write.key().clone());
            }
        }
        self.forget_some();
        for key in &keys {
            self.known.insert(key.clone(), Known { revision: None, submission: number });
        }
        let is_staged = writes.iter().any(|write| write.as_staged().is_some());
        Admission::Direct { slot, writes, submission: Submission { keys, number, is_staged } }
    }

    /// Returns the conversation and its revision after the writes, if they continue from its known
    /// revision.
    fn goes_on(&self, writes: &[Write]) -> Option<(ConversationKey, Revision)> {
        let key = writes.first()?.key();
        let mut revision = match self.conversations.get(key) {
            Some(waiting) => waiting.result,
            None => self.known.get(key)?.revision?,
        };
        for write in writes {
            let is_plain = write.as_staged().is_none() && write.claims().is_empty();
            if write.key() != key || write.expected() != revision || !is_plain {
                return None;
            }
            revision = write.result();
        }
        Some((key.clone(), revision))
    }

    /// Gathers writes. Returns whether the conversation had no gathered writes before.
    fn gather(
        &mut self,
        key: &ConversationKey,
        slot: Slot,
        writes: Vec<Write>,
        result: Revision,
        max_delay: Duration,
    ) -> bool {
        let due = || after(max_delay);
        let count = writes.len();
        match self.conversations.get_mut(key) {
            Some(waiting) => {
                if waiting.writes.is_empty() && waiting.waiters.is_empty() {
                    waiting.due = due();
                }
                waiting.slots.push(slot);
                waiting.writes.extend(writes);
                waiting.set_unstored(waiting.unstored + count);
                waiting.result = result;
                false
            }
            None => {
                let waiting = Waiting {
                    writes,
                    slots: vec![slot],
                    unstored: count,
                    counted: telemetry::unstored(count),
                    result,
                    due: due(),
                    failures: 0,
                    waiters: Vec::new(),
                };
                self.conversations.insert(key.clone(), waiting);
                self.known.remove(key);
                true
            }
        }
    }

    fn has_row(&self) -> bool {
        self.is_row_submitted || !self.row.is_empty()
    }

    /// Called when a submission to the inner store was stored.
    pub(super) fn stored(&mut self, submission: &Submission, revision: Revision) {
        // If there are several conversations, it is unknown whose revision this is.
        let [key] = submission.keys.as_slice() else { return };
        if submission.is_staged {
            return;
        }
        let known = self.known.get_mut(key);
        if let Some(known) = known.filter(|known| known.submission == submission.number) {
            known.revision = Some(revision);
        }
    }

    /// Called when a revision was read. If it differs from the known one, another process has
    /// written.
    pub(super) fn saw(&mut self, key: &ConversationKey, revision: Revision) {
        if self.known.get(key).is_some_and(|known| known.revision != Some(revision)) {
            self.known.remove(key);
        }
    }

    /// Forgets the known revision of a conversation.
    pub(super) fn forget(&mut self, key: &ConversationKey) {
        self.known.remove(key);
    }

    fn forget_some(&mut self) {
        if self.known.len() >= KNOWN_CONVERSATIONS {
            self.known.clear();
        }
    }

    /// Makes a conversation's writes due now. Returns `None` if there are none.
    pub(super) fn settle(&mut self, key: &ConversationKey) -> Option<Unsettled> {
        if self.has_row() {
            return Some(self.settle_row());
        }
        let (waiter, unsettled) = oneshot::channel();
        let waiting = self.conversations.get_mut(key)?;
        waiting.due = Instant::now();
        waiting.waiters.push(waiter);
        Some(unsettled)
    }

    /// Makes all writes due now.
    pub(super) fn settle_all(&mut self) -> Vec<Unsettled> {
        if self.has_row() {
            return vec![self.settle_row()];
        }
        let keys: Vec<_> = self.conversations.keys().cloned().collect();
        keys.iter().filter_map(|key| self.settle(key)).collect()
    }

    /// Returns a receiver that resolves after the queue, which is after all gathered writes.
    fn settle_row(&mut self) -> Unsettled {
        let (waiter, unsettled) = oneshot::channel();
        self.row_waiters.push(waiter);
        unsettled
    }

    /// Makes all writes due now, without waiting for them.
    pub(super) fn all_is_due(&mut self) {
        let now = Instant::now();
        for waiting in self.conversations.values_mut() {
            waiting.due = now;
        }
    }

    pub(super) fn gather_no_more(&mut self) {
        self.phase = Phase::Closed;
    }

    pub(super) fn end(&mut self) {
        self.phase = Phase::Ending;
        self.all_is_due();
    }

    /// Called when the writer thread has ended.
    pub(super) fn has_no_writer(&mut self) {
        let known = mem::take(&mut self.known);
        *self =
            Self { known, submissions: self.submissions, phase: Phase::Closed, ..Self::default() };
    }

    /// Returns the conversations with writes that have failed and are retried.
    pub(super) fn failing(&self) -> Vec<ConversationKey> {
        let failing = self.conversations.iter().filter(|(_, waiting)| waiting.failures > 0);
        failing.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the number of writes that are gathered or being stored.
    pub(super) fn unstored(&self) -> usize {
        self.conversations.values().map(|waiting| waiting.unstored).sum()
    }

    /// Removes and returns a loss that was not reported to a caller.
    pub(super) fn take_any_loss(&mut self) -> Option<StoreError> {
        let key = self.lost.keys().next()?.clone();
        self.lost.remove(&key)
    }
}

impl Waiting {
    fn set_unstored(&mut self, writes: usize) {
        self.unstored = writes;
        self.counted = telemetry::unstored(writes);
    }
}

/// Returns the time after a delay.
fn after(delay: Duration) -> Instant {
    Instant::now() + delay.min(FOREVER)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use tower_chat_core::{Message, MessageId, RunId};

    use super::*;

    const DELAY: Duration = Duration::from_secs(100_000);

    fn write(expected: Revision) -> Write {
        let id = MessageId { run: RunId::new(), index: 0 };
        let key = ConversationKey::new("alice", "support");
        Write::new(key, id, expected, [Arc::new(Message::user("hi"))])
    }

    fn take(gathered: &mut Gathered, write: &Write) -> Admission {
        gathered.take(Slot::unbounded(), vec![write.clone()], true, DELAY)
    }

    #[test]
    fn a_flush_waits_for_writes_that_are_being_submitted() {
        let mut gathered = Gathered::default();
        let first = write(Revision::ABSENT);
        let Admission::Direct { submission, .. } = take(&mut gathered, &first) else { panic!() };
        gathered.stored(&submission, first.result());
        let second = write(first.result());
        assert!(matches!(take(&mut gathered, &second), Admission::Acknowledged { .. }));
        assert!(matches!(take(&mut gathered, &write(first.result())), Admission::InRow(_)));

        let Work::Store(due) = gathered.next_work(Instant::now()) else { panic!() };
        for due in due {
            gathered.tried(due, Ok(second.result()), DELAY);
        }
        let Work::Submit(row) = gathered.next_work(Instant::now()) else { panic!() };
        assert_eq!((row.len(), gathered.unstored()), (1, 0));
        let mut unsettled = gathered.settle_all();
        assert_eq!(unsettled.len(), 1);
        assert!((&mut unsettled[0]).now_or_never().is_none());
        gathered.row_is_over();
        assert!(matches!((&mut unsettled[0]).now_or_never(), Some(Ok(Ok(())))));
    }
}
