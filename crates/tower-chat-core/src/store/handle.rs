//! A store's identity, its outbox, and the runs under way.

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
    telemetry::{
        GaugeGuard,
        metric::{self, label},
    },
};

/// How many messages an outbox holds unless it is told otherwise.
const DEFAULT_OUTBOX_LIMIT: usize = 10_000;

/// What identifies a store among its clones, with the outbox of writes that it could not take.
///
/// A write that fails under a policy of going on is kept here, in memory, until the next write to
/// its conversation submits both, in order. Loads through the layers see what is in it. It is
/// bounded by a number of messages, in which a write without any counts as one.
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
    holder: u64,
    runs: RunsUnderWay,
    limit: usize,
    is_exclusive: bool,
    outbox: Mutex<Outbox>,
}

#[derive(Debug, Default)]
struct Outbox {
    unsaved: HashMap<ConversationKey, Unsaved>,
    messages: usize,
}

/// The unsaved writes of a conversation, oldest first.
#[derive(Debug, Default)]
struct Unsaved {
    writes: Vec<Write>,
    gauges: Vec<GaugeGuard>,
}

/// The outbox of unsaved writes has no room for more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit} messages wait to be stored already, as many as the outbox may hold")]
#[non_exhaustive]
pub struct OutboxFull {
    /// How many messages it may hold.
    pub limit: usize,
}

impl StoreHandle {
    /// A new identity whose outbox holds up to 10,000 messages.
    pub fn new() -> Self {
        Self::with_outbox_limit(DEFAULT_OUTBOX_LIMIT)
    }

    /// A new identity whose outbox holds up to `limit` messages.
    pub fn with_outbox_limit(limit: usize) -> Self {
        Self::of(limit, false)
    }

    /// A new identity of a store that one process at a time opens.
    ///
    /// No other process can be at work on an open run then, so a journaled run takes no lease, and
    /// a run that a process left open when it died is taken over without waiting. If several
    /// processes do open the store, what a run that was taken over still writes is refused all the
    /// same, but a run may be taken over while its process is at work on it.
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

    /// Says what the store is, in spans and metrics: `sqlite`, `postgresql`, `redis`, `memory`, or the
    /// name of another. Handles that were cloned before do not know it.
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

    /// What the store is.
    pub fn system(&self) -> Option<&'static str> {
        self.system
    }

    /// Whether one process at a time opens the store, so that leases are neither taken nor waited
    /// for.
    pub fn is_exclusive(&self) -> bool {
        self.shared.is_exclusive
    }

    /// The random number by which the [`Lease`](super::Lease)s taken through this store are known.
    pub fn holder(&self) -> u64 {
        self.shared.holder
    }

    /// Begins a run on a conversation, as the only one in this process. Where another is under way
    /// it waits for its turn, in the order in which runs came, unless `most` wait already.
    ///
    /// Dropping the future removes the run from the queue.
    ///
    /// # Errors
    ///
    /// [`ConversationBusy`], at once, if `most` wait already.
    pub async fn begin_run(
        &self,
        key: &ConversationKey,
        run: RunId,
        most: usize,
    ) -> Result<RunUnderWay, ConversationBusy> {
        self.shared.runs.begin(key, run, most).await
    }

    /// The run under way on a conversation in this process.
    pub fn run_under_way(&self, key: &ConversationKey) -> Option<RunId> {
        self.shared.runs.find(key)
    }

    /// Makes sure that no run is under way on a conversation in this process, and that nothing of
    /// it waits to be stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnderWay`].
    pub fn at_rest(&self, key: &ConversationKey) -> Result<(), StoreError> {
        let unsaved = || self.outbox().unsaved.get(key)?.writes.first().map(Write::run);
        match self.run_under_way(key).or_else(unsaved) {
            Some(run) => Err(StoreError::UnderWay { key: key.clone(), run }),
            None => Ok(()),
        }
    }

    /// Whether both belong to the same store.
    pub fn is_same_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Keeps writes that could not be stored, after those kept already for their conversation.
    ///
    /// # Errors
    ///
    /// [`OutboxFull`], with nothing kept.
    pub fn keep_unsaved(&self, writes: &[Write]) -> Result<(), OutboxFull> {
        let mut outbox = self.outbox();
        let messages: usize = writes.iter().map(room).sum();
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
            unsaved.gauges.extend(metric::OUTBOX_MESSAGES.hold(room(write) as u64, labels));
        }
        Ok(())
    }

    /// The unsaved writes of a conversation, oldest first; they stay in the outbox.
    pub fn unsaved(&self, key: &ConversationKey) -> Vec<Write> {
        let outbox = self.outbox();
        outbox.unsaved.get(key).map(|unsaved| unsaved.writes.clone()).unwrap_or_default()
    }

    /// Takes the unsaved writes of a conversation out, to submit them again.
    pub fn take_unsaved(&self, key: &ConversationKey) -> Vec<Write> {
        let mut outbox = self.outbox();
        if outbox.unsaved.is_empty() {
            return Vec::new();
        }
        let Unsaved { writes, gauges } = outbox.unsaved.remove(key).unwrap_or_default();
        drop(gauges);
        outbox.messages -= writes.iter().map(room).sum::<usize>();
        writes
    }

    /// The conversations that have unsaved writes.
    pub fn unsaved_conversations(&self) -> Vec<ConversationKey> {
        self.outbox().unsaved.keys().cloned().collect()
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.shared.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of the limit a write takes up.
fn room(write: &Write) -> usize {
    write.messages().len().max(1)
}

impl Default for StoreHandle {
    fn default() -> Self {
        Self::new()
    }
}
