//! A store that fails on command.

mod injector;
mod operation;
mod script;
mod store;

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Semaphore, oneshot, watch};
use tower_chat_core::{
    ConversationKey,
    store::{
        HistoryStore, StoreError, StoreHandle,
        author::{Slot, Ticket, Write},
    },
};

pub use self::injector::{FaultInjector, Injection, Operation, StoreFault};
use self::script::Script;
use crate::Gate;

/// Wraps any store, makes it fail or wait when a test requires it, and counts its operations.
///
/// Faults are either prepared for the next operations of a kind, or decided at every operation by a
/// [`FaultInjector`]. Without faults, it forwards each operation to the inner store.
///
/// The [`handle`](HistoryStore::handle) is that of the inner store, unless the faulty store simulates
/// [another process](Self::in_another_process) or [one of several](Self::shared_by_processes), or has an
/// injector. Clones share faults and counts.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
/// use tower_chat_testkit::{StoreFault, FaultyStore, Injection, Operation};
/// let on_fire = || StoreError::backend("read", true, "disk on fire");
/// let key = ConversationKey::new("alice", "support");
///
/// let store = FaultyStore::new(MemoryStore::new());
/// store.fail_next_load(on_fire());
/// assert!(store.load(&key).await.is_err());
/// assert!(store.load(&key).await.is_ok());
/// assert_eq!(store.loads(), 2);
///
/// let store = FaultyStore::with_injector(MemoryStore::new(), move |operation| match operation {
///     Operation::Load => Injection::none().with(StoreFault::Before(on_fire())),
///     _ => Injection::none(),
/// });
/// assert!(store.load(&key).await.is_err());
/// assert!(store.head(&key).await.is_ok());
/// # });
/// ```
pub struct FaultyStore<S> {
    inner: Arc<S>,
    handle: Option<StoreHandle>,
    permits: Option<Arc<Semaphore>>,
    injector: Option<Arc<dyn FaultInjector>>,
    shared: Arc<Shared>,
    retained: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    unreleased: watch::Sender<Unreleased>,
    is_dead: AtomicBool,
}

#[derive(Default)]
struct State {
    script: Script,
    is_holding: bool,
    held: VecDeque<Held>,
}

/// A submission that was not passed to the inner store yet.
struct Held {
    slot: Slot,
    writes: Vec<Write>,
    fault: Option<StoreFault>,
    ticket: oneshot::Sender<Ticket>,
}

/// The submissions that were not passed to the inner store yet.
#[derive(Default)]
struct Unreleased {
    /// The number of delayed submissions that were passed to the inner store since the store was created.
    released: usize,
    /// The conversation of each delayed write, in the order of the writes.
    keys: VecDeque<ConversationKey>,
}

impl<S: HistoryStore> FaultyStore<S> {
    /// Creates a store without faults.
    pub fn new(inner: S) -> Self {
        Self {
            inner: Arc::new(inner),
            handle: None,
            permits: None,
            injector: None,
            shared: Arc::default(),
            retained: None,
        }
    }

    /// Creates a store with an injector, which decides the fault of every operation. The store simulates
    /// the store of one process. Two such stores around clones of one inner store simulate two
    /// processes.
    ///
    /// Operations of the inner store block the calling thread. Their order and effects therefore depend
    /// only on the decisions of the injector, even if the inner store has threads. Each operation waits
    /// for the earlier submissions. The store owns a delayed submission: a task submits it to the inner
    /// store, in the order of the submissions. [`hold_appends`](Self::hold_appends) has no effect.
    pub fn with_injector(inner: S, injector: impl FaultInjector) -> Self {
        Self {
            handle: Some(StoreHandle::new()),
            injector: Some(Arc::new(injector)),
            ..Self::new(inner)
        }
    }

    /// Sets the number of permits of the queue. Further reservations wait until a permit is
    /// released.
    #[must_use]
    pub fn with_queue_capacity(mut self, permits: usize) -> Self {
        self.permits = Some(Arc::new(Semaphore::new(permits)));
        self
    }

    /// Stores a value, such as the folder of the inner store, until all clones of this store are
    /// dropped.
    #[must_use]
    pub fn keeping(mut self, value: impl Any + Send + Sync) -> Self {
        self.retained = Some(Arc::new(value));
        self
    }

    /// Makes the store behave like the store of one of several processes, regardless of the inner store.
    /// The store gets its own handle, which is not [exclusive](StoreHandle::exclusive), so journaled runs
    /// have leases.
    #[must_use]
    pub fn shared_by_processes(mut self) -> Self {
        self.handle = Some(StoreHandle::new());
        self
    }

    /// Returns the same store as another process would open it: with its own handle, which does not know
    /// the runs in progress of this store. The two share faults and counts.
    #[must_use]
    pub fn in_another_process(&self) -> Self {
        self.clone().shared_by_processes()
    }

    /// Returns the inner store, whose operations are not counted.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes the next load, or the next read of an open run, fail. A second call of this method makes
    /// one more of these operations fail.
    pub fn fail_next_load(&self, error: StoreError) {
        self.prepare(Operation::Load, StoreFault::Before(error));
    }

    /// Makes the next read of a head fail.
    pub fn fail_next_head(&self, error: StoreError) {
        self.prepare(Operation::Head, StoreFault::Before(error));
    }

    /// Makes the next reservation fail.
    pub fn fail_next_reserve(&self, error: StoreError) {
        self.prepare(Operation::Reserve, StoreFault::Before(error));
    }

    /// Makes the next query of the record of tool calls fail, for calls or for totals.
    pub fn fail_next_query(&self, error: StoreError) {
        self.prepare(Operation::Invocations, StoreFault::Before(error));
    }

    /// Makes the next submission fail without storing any of its writes.
    pub fn fail_next_append(&self, error: StoreError) {
        self.prepare(Operation::Append, StoreFault::Before(error));
    }

    /// Makes the next submission fail at a write, counted from 0. The previous writes of the submission
    /// are stored.
    pub fn fail_next_append_at(&self, write: usize, error: StoreError) {
        self.prepare(Operation::Append, StoreFault::Midway(write, error));
    }

    /// Stores the next submission and reports a failure of its first write, like a lost connection.
    pub fn fail_next_append_after_storing(&self, error: StoreError) {
        self.prepare(Operation::Append, StoreFault::After(error));
    }

    /// Lets this many submissions succeed before the next prepared fault.
    pub fn let_appends_through(&self, count: usize) {
        (0..count).for_each(|_| self.state().script.push(Operation::Append, None));
    }

    /// Makes every submission fail without storing any of its writes, until [`heal`](Self::heal).
    pub fn fail_every_append(&self, error: impl Fn() -> StoreError + Send + 'static) {
        self.state().script.fail_every_append(error);
    }

    /// Removes all prepared faults. Does not open gates, and does not release delayed submissions.
    pub fn heal(&self) {
        self.state().script.clear_faults();
    }

    /// Makes the next load, or the next read of an open run, wait at a gate before it reads.
    pub fn hold_next_load(&self, gate: &Gate) {
        self.state().script.hold(Operation::Load, gate);
    }

    /// Makes the next reservation wait at a gate, like a store with a full queue.
    pub fn hold_next_reserve(&self, gate: &Gate) {
        self.state().script.hold(Operation::Reserve, gate);
    }

    /// Delays submissions until [`release_appends`](Self::release_appends), like a slow store. The store
    /// owns these submissions: loads of their conversations and `flush` wait for them.
    pub fn hold_appends(&self) {
        self.state().is_holding = true;
    }

    /// Passes the delayed submissions to the inner store, in order, and stops delaying submissions.
    pub fn release_appends(&self) {
        let mut state = self.state();
        state.is_holding = false;
        while self.release_one(&mut state) {}
    }

    /// Waits until at least `count` writes are delayed.
    pub async fn holding(&self, count: usize) {
        let is_reached = |unreleased: &Unreleased| unreleased.keys.len() >= count;
        let _ = self.shared.unreleased.subscribe().wait_for(is_reached).await;
    }

    /// Simulates the death of the process: submissions that are not stored, and later submissions, are
    /// never stored.
    pub fn die(&self) {
        self.shared.is_dead.store(true, Ordering::Release);
    }

    /// Returns the number of loads and reads of open runs, including failed ones.
    pub fn loads(&self) -> usize {
        self.state().script.counted(Operation::Load)
    }

    /// Returns the number of reads of a head.
    pub fn heads(&self) -> usize {
        self.state().script.counted(Operation::Head)
    }

    /// Returns the number of reservations.
    pub fn reserves(&self) -> usize {
        self.state().script.counted(Operation::Reserve)
    }

    /// Returns the number of queries of the record of tool calls, for calls or for totals.
    pub fn queries(&self) -> usize {
        self.state().script.counted(Operation::Invocations)
    }

    /// Returns the number of submissions.
    pub fn appends(&self) -> usize {
        self.state().script.counted(Operation::Append)
    }

    /// Returns every write of every submission, including failed ones, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.state().script.writes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, operation: Operation, fault: StoreFault) {
        self.state().script.push(operation, Some(fault));
    }
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            handle: self.handle.clone(),
            permits: self.permits.clone(),
            injector: self.injector.clone(),
            shared: self.shared.clone(),
            retained: self.retained.clone(),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
