//! [`FaultyStore`], whose operations fail or wait when a test requires it.
//!
//! - A *submission* is the writes of one call of `append`. Its *ticket* is the future with which
//!   the caller waits for the outcome.
//! - The *head* of a conversation is its revision and its open run (a run that is not committed
//!   yet), without the messages.

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

/// A store that wraps any other store, counts its operations, and makes them fail or wait when a
/// test requires it.
///
/// A test either prepares faults for the next operations of a kind, or passes a [`FaultInjector`],
/// which selects the fault of each operation. An operation without a fault is forwarded to the
/// inner store.
///
/// The [`handle`](HistoryStore::handle) of a store contains the runs that are in progress in the
/// process. This store shares the handle of the inner store, unless it has an injector or simulates
/// [another process](Self::in_another_process) or
/// [one of several processes](Self::shared_by_processes). Clones share faults and counts.
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

/// A delayed submission, which was not yet passed to the inner store.
struct Held {
    slot: Slot,
    writes: Vec<Write>,
    fault: Option<StoreFault>,
    ticket: oneshot::Sender<Ticket>,
}

/// The state that operations watch to wait for delayed submissions.
#[derive(Default)]
struct Unreleased {
    /// The number of submissions that were first delayed and then passed to the inner store.
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

    /// Creates a store that simulates the store of one process and has an injector, which selects
    /// the fault of each operation. To simulate two processes, wrap two clones of the same inner
    /// store.
    ///
    /// The order and the effects of operations depend only on the injector, even if the inner store
    /// has threads: an operation waits until all earlier submissions were passed to the inner
    /// store, and then blocks the calling thread until the inner store has completed the operation.
    /// If the injector delays submissions, a task later passes them to the inner store, in their
    /// order. [`hold_appends`](Self::hold_appends) has no effect.
    pub fn with_injector(inner: S, injector: impl FaultInjector) -> Self {
        Self {
            handle: Some(StoreHandle::new()),
            injector: Some(Arc::new(injector)),
            ..Self::new(inner)
        }
    }

    /// Sets the number of slots (entries of the queue) that can be
    /// [reserved](HistoryStore::reserve) at the same time. Further reservations wait until a slot
    /// is released.
    #[must_use]
    pub fn with_queue_capacity(mut self, permits: usize) -> Self {
        self.permits = Some(Arc::new(Semaphore::new(permits)));
        self
    }

    /// Keeps a value, such as the temporary folder of the inner store, until all clones of this
    /// store are dropped.
    #[must_use]
    pub fn keeping(mut self, value: impl Any + Send + Sync) -> Self {
        self.retained = Some(Arc::new(value));
        self
    }

    /// Makes the store behave as if several processes used it. The store gets its own handle, which
    /// is not [exclusive](StoreHandle::exclusive). Journaled runs therefore have leases: a time
    /// until which no other process may take over the run.
    #[must_use]
    pub fn shared_by_processes(mut self) -> Self {
        self.handle = Some(StoreHandle::new());
        self
    }

    /// Returns the same store, as another process would open it. The returned store has its own
    /// handle, which does not know the runs that are in progress in this store. Both stores share
    /// faults and counts.
    #[must_use]
    pub fn in_another_process(&self) -> Self {
        self.clone().shared_by_processes()
    }

    /// Returns the inner store. Operations that are called on the inner store have no faults and
    /// are not counted.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes the next load or the next read of an open run fail. If this method is called twice,
    /// the next two of these operations fail.
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

    /// Makes the next query for tool calls or for totals of tool calls fail.
    pub fn fail_next_query(&self, error: StoreError) {
        self.prepare(Operation::Invocations, StoreFault::Before(error));
    }

    /// Makes the next submission fail without storing any of its writes.
    pub fn fail_next_append(&self, error: StoreError) {
        self.prepare(Operation::Append, StoreFault::Before(error));
    }

    /// Makes the next submission fail at the write with this index, from 0. The earlier writes of
    /// the submission are stored.
    pub fn fail_next_append_at(&self, write: usize, error: StoreError) {
        self.prepare(Operation::Append, StoreFault::Midway(write, error));
    }

    /// Stores the writes of the next submission, but reports that the first write has failed. This
    /// fault simulates a connection that is lost before the reply arrives.
    pub fn fail_next_append_after_storing(&self, error: StoreError) {
        self.prepare(Operation::Append, StoreFault::After(error));
    }

    /// Makes the next `count` submissions succeed. Faults that are prepared afterwards apply to
    /// later submissions.
    pub fn let_appends_through(&self, count: usize) {
        (0..count).for_each(|_| self.state().script.push(Operation::Append, None));
    }

    /// Makes every submission fail without storing any of its writes, until [`heal`](Self::heal).
    pub fn fail_every_append(&self, error: impl Fn() -> StoreError + Send + 'static) {
        self.state().script.fail_every_append(error);
    }

    /// Removes all prepared faults. Does not open gates or release delayed submissions.
    pub fn heal(&self) {
        self.state().script.clear_faults();
    }

    /// Makes the next load, or the next read of an open run, wait at a gate before it reads.
    pub fn hold_next_load(&self, gate: &Gate) {
        self.state().script.hold(Operation::Load, gate);
    }

    /// Makes the next reservation wait at a gate, as if the queue of the store were full.
    pub fn hold_next_reserve(&self, gate: &Gate) {
        self.state().script.hold(Operation::Reserve, gate);
    }

    /// Delays submissions until [`release_appends`](Self::release_appends) is called, as if the
    /// store were slow. `flush`, and loads of the same conversations, wait for the delayed
    /// submissions. A delayed submission is stored later even if the caller drops its ticket.
    pub fn hold_appends(&self) {
        self.state().is_holding = true;
    }

    /// Passes the delayed submissions to the inner store in their order. Later submissions are not
    /// delayed.
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

    /// Simulates the death of the process: delayed submissions and later submissions are never
    /// stored.
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

    /// Returns the number of queries for tool calls and for totals of tool calls.
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
