//! The handle of a store: its identity, its outbox, and its runs in progress.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    StoreError,
    author::Write,
    under_way::{ConversationBusy, RunUnderWay, RunsUnderWay},
};
use crate::{
    ConversationKey, RunId,
    counted::counted,
    telemetry::{
        GaugeGuard,
        metric::{self, label},
    },
};

const DEFAULT_OUTBOX_LIMIT: usize = 10_000;

/// Identifies a store and its clones, and contains their outbox: the writes that failed and are
/// submitted again later.
///
/// If a write fails, and the policy is to continue the run, the persistence layers (which load and
/// store conversations) add the write to the outbox, in memory. With the next write to the same
/// conversation, these layers first submit the writes in the outbox, in order. Loads through these
/// layers include the messages in the outbox. The outbox is bounded by a number of messages. A
/// write without messages counts as one message.
///
/// ```
/// use tower_chat_core::store::StoreHandle;
/// let handle = StoreHandle::new();
/// assert!(handle.is_same_store(&handle.clone()));
/// assert!(!handle.is_same_store(&StoreHandle::new()));
/// ```
#[derive(Debug, Clone)]
pub struct StoreHandle {
    shared: Arc<Shared>,
    system: Option<&'static str>,
}

#[derive(Debug)]
struct Shared {
    /// The random number that identifies the store in leases.
    holder: u64,
    runs: RunsUnderWay,
    limit: usize,
    /// Whether at most one process opens the store at a time.
    is_exclusive: bool,
    outbox: Mutex<Outbox>,
}

#[derive(Debug, Default)]
struct Outbox {
    unsaved: HashMap<ConversationKey, Unsaved>,
    /// The number of messages in the outbox, where a write without messages counts as one message.
    messages: usize,
}

/// The unsaved writes of a conversation, oldest first.
#[derive(Debug, Default)]
struct Unsaved {
    writes: Vec<Write>,
    /// Guards that subtract the messages of the writes from a metric when they are dropped.
    gauges: Vec<GaugeGuard>,
}

/// The outbox of unsaved writes is full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the outbox is full: it contains the maximum of {}, which could not be stored yet: try again \
     when the store works again",
    counted(*limit, "message")
)]
#[non_exhaustive]
pub struct OutboxFull {
    /// The maximum number of messages in the outbox.
    pub limit: usize,
}

impl StoreHandle {
    /// Creates a new identity. The outbox has space for 10,000 messages.
    pub fn new() -> Self {
        Self::with_outbox_limit(DEFAULT_OUTBOX_LIMIT)
    }

    /// Creates a new identity. The outbox has space for `limit` messages.
    pub fn with_outbox_limit(limit: usize) -> Self {
        Self::of(limit, false)
    }

    /// Creates a new identity for a store that at most one process opens at a time.
    ///
    /// While a process has the store open, no other process can write an open run of the store.
    /// Therefore a journaled run uses no lease, and a run that a process left open when it died is
    /// resumed without waiting. If several processes do open the store, the store still refuses the
    /// writes of a run that another process has resumed. However, a run may then be resumed while
    /// its process is still executing it.
    ///
    /// ```
    /// use tower_chat_core::store::StoreHandle;
    /// assert!(StoreHandle::exclusive().is_exclusive());
    /// assert!(!StoreHandle::new().is_exclusive());
    /// ```
    pub fn exclusive() -> Self {
        Self::of(DEFAULT_OUTBOX_LIMIT, true)
    }

    fn of(limit: usize, is_exclusive: bool) -> Self {
        let shared = Arc::new(Shared {
            holder: RunId::new().random_half(),
            runs: RunsUnderWay::default(),
            limit,
            is_exclusive,
            outbox: Mutex::default(),
        });
        Self { shared, system: None }
    }

    /// Sets the kind of store for spans and metrics: `sqlite`, `postgresql`, `redis`, `memory`, or
    /// another name. Handles that were cloned earlier do not change.
    ///
    /// ```
    /// use tower_chat_core::store::StoreHandle;
    /// assert_eq!(StoreHandle::new().with_system("sqlite").system(), Some("sqlite"));
    /// ```
    #[must_use]
    pub fn with_system(mut self, system: &'static str) -> Self {
        self.system = Some(system);
        self
    }

    /// Returns the kind of store.
    pub fn system(&self) -> Option<&'static str> {
        self.system
    }

    /// Returns whether at most one process opens the store at a time. If so, runs neither acquire
    /// leases nor wait for them.
    pub fn is_exclusive(&self) -> bool {
        self.shared.is_exclusive
    }

    /// Returns the random number that identifies this store in its [`Lease`](super::Lease)s.
    pub fn holder(&self) -> u64 {
        self.shared.holder
    }

    /// Begins a run on a conversation. At most one run per conversation is in progress in this
    /// process. If another run is in progress, the future waits until that run, and all runs that
    /// were already waiting, have ended. At most `max_waiting` runs may wait.
    ///
    /// Dropping the future removes the run from the queue.
    ///
    /// # Errors
    ///
    /// [`ConversationBusy`], without waiting, if `max_waiting` runs are waiting already.
    pub async fn begin_run(
        &self,
        key: &ConversationKey,
        run: RunId,
        max_waiting: usize,
    ) -> Result<RunUnderWay, ConversationBusy> {
        self.shared.runs.begin(key, run, max_waiting).await
    }

    /// Returns the run in progress on a conversation in this process.
    pub fn run_under_way(&self, key: &ConversationKey) -> Option<RunId> {
        self.shared.runs.find(key)
    }

    /// Checks that no run on a conversation is in progress in this process, and that the outbox
    /// contains no write of the conversation.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnderWay`], if there is such a run or write.
    pub fn at_rest(&self, key: &ConversationKey) -> Result<(), StoreError> {
        let unsaved = || self.outbox().unsaved.get(key)?.writes.first().map(Write::run);
        match self.run_under_way(key).or_else(unsaved) {
            Some(run) => Err(StoreError::UnderWay { key: key.clone(), run }),
            None => Ok(()),
        }
    }

    /// Returns whether both handles belong to the same store.
    pub fn is_same_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Adds writes that could not be stored to the outbox, after the earlier writes of their
    /// conversation.
    ///
    /// # Errors
    ///
    /// [`OutboxFull`]. None of the writes is then added.
    pub fn keep_unsaved(&self, writes: &[Write]) -> Result<(), OutboxFull> {
        let mut outbox = self.outbox();
        let messages: usize = writes.iter().map(counted_messages).sum();
        if outbox.messages + messages > self.shared.limit {
            return Err(OutboxFull { limit: self.shared.limit });
        }
        outbox.messages += messages;
        if !writes.is_empty() {
            metric::OUTBOX_FAILURES.add(1, &[(label::SYSTEM, self.system)]);
        }
        for write in writes {
            let unsaved = outbox.unsaved.entry(write.key().clone()).or_default();
            unsaved.writes.push(write.clone());
            let labels = &[(label::SYSTEM, self.system)];
            unsaved
                .gauges
                .extend(metric::OUTBOX_MESSAGES.hold(counted_messages(write) as u64, labels));
        }
        Ok(())
    }

    /// Returns the unsaved writes of a conversation, oldest first, and leaves them in the outbox.
    pub fn unsaved(&self, key: &ConversationKey) -> Vec<Write> {
        let outbox = self.outbox();
        outbox.unsaved.get(key).map(|unsaved| unsaved.writes.clone()).unwrap_or_default()
    }

    /// Removes the unsaved writes of a conversation from the outbox and returns them, to submit
    /// them again.
    pub fn take_unsaved(&self, key: &ConversationKey) -> Vec<Write> {
        let mut outbox = self.outbox();
        if outbox.unsaved.is_empty() {
            return Vec::new();
        }
        let Unsaved { writes, gauges } = outbox.unsaved.remove(key).unwrap_or_default();
        drop(gauges);
        outbox.messages -= writes.iter().map(counted_messages).sum::<usize>();
        writes
    }

    /// Returns the conversations that have unsaved writes.
    pub fn unsaved_conversations(&self) -> Vec<ConversationKey> {
        self.outbox().unsaved.keys().cloned().collect()
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.shared.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of messages by which a write increases [`Outbox::messages`].
fn counted_messages(write: &Write) -> usize {
    write.messages().len().max(1)
}

impl Default for StoreHandle {
    fn default() -> Self {
        Self::new()
    }
}
