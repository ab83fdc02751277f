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

pub use self::injector::{Fault, FaultInjector, Injection, Operation};
use self::script::Script;
use crate::Gate;

/// Any store, made to fail or to wait when a test says so, and keeping count of what is asked.
///
/// Faults are either prepared for the next operations of a kind, or decided at every operation by
/// a [`FaultInjector`]. Without either it adds nothing.
///
/// It is the store it wraps: their [`handle`](HistoryStore::handle) is the same, unless it stands
/// for [another process](Self::in_another_process) or has an injector. Clones share faults and
/// counts.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
/// use tower_chat_testkit::{Fault, FaultyStore, Injection, Operation};
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
///     Operation::Load => Injection::none().with(Fault::Before(on_fire())),
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

/// A submission that the store inside does not have yet.
struct Held {
    slot: Slot,
    writes: Vec<Write>,
    fault: Option<Fault>,
    ticket: oneshot::Sender<Ticket>,
}

/// The submissions that the store inside does not have yet, to wait for.
#[derive(Default)]
struct Unreleased {
    /// How many submissions were held and released before these.
    released: usize,
    /// The conversations of their writes, in order.
    keys: VecDeque<ConversationKey>,
}

impl<S: HistoryStore> FaultyStore<S> {
    /// A store with no faults yet.
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

    /// The store as one process sees it, with an injector that decides at every operation what goes
    /// wrong. Two of them around clones of one store are two processes.
    ///
    /// Operations of the store inside are waited for on the calling thread, so that what happens, and
    /// in which order, depends on the decisions alone, whatever threads that store has. Each waits
    /// for the submissions before it. A submission that is delayed belongs to the store all the
    /// same: a task makes it, in the order of the submissions. None is held by
    /// [`hold_appends`](Self::hold_appends).
    pub fn with_injector(inner: S, injector: impl FaultInjector) -> Self {
        Self {
            handle: Some(StoreHandle::new()),
            injector: Some(Arc::new(injector)),
            ..Self::new(inner)
        }
    }

    /// With a queue of this many permits: further reservations wait until one is given back.
    #[must_use]
    pub fn with_queue_capacity(mut self, permits: usize) -> Self {
        self.permits = Some(Arc::new(Semaphore::new(permits)));
        self
    }

    /// Keeps a value until the last clone is dropped, such as the folder that the store inside uses.
    #[must_use]
    pub fn keeping(mut self, value: impl Any + Send + Sync) -> Self {
        self.retained = Some(Arc::new(value));
        self
    }

    /// As a store that several processes use, whatever the store inside is: with a handle of its
    /// own that is not [exclusive](StoreHandle::exclusive), so that journaled runs take leases.
    #[must_use]
    pub fn shared_by_processes(mut self) -> Self {
        self.handle = Some(StoreHandle::new());
        self
    }

    /// The same store as another process sees it: with a handle of its own, so that it knows
    /// nothing of the runs under way here. Faults and counts are shared.
    #[must_use]
    pub fn in_another_process(&self) -> Self {
        self.clone().shared_by_processes()
    }

    /// The store inside, to look at without being counted.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Fails a load; called again, the one after it too.
    pub fn fail_next_load(&self, error: StoreError) {
        self.prepare(Operation::Load, Fault::Before(error));
    }

    /// Fails a reading of the head.
    pub fn fail_next_head(&self, error: StoreError) {
        self.prepare(Operation::Head, Fault::Before(error));
    }

    /// Fails a reservation.
    pub fn fail_next_reserve(&self, error: StoreError) {
        self.prepare(Operation::Reserve, Fault::Before(error));
    }

    /// Fails a question to the record of tool calls, for calls or for totals.
    pub fn fail_next_query(&self, error: StoreError) {
        self.prepare(Operation::Invocations, Fault::Before(error));
    }

    /// Fails a submission with nothing of it stored.
    pub fn fail_next_append(&self, error: StoreError) {
        self.prepare(Operation::Append, Fault::Before(error));
    }

    /// Fails a submission at a write, counted from 0; those before it are stored.
    pub fn fail_next_append_at(&self, write: usize, error: StoreError) {
        self.prepare(Operation::Append, Fault::Midway(write, error));
    }

    /// Stores a submission and says that it failed, at its first write, as a lost connection does.
    pub fn fail_next_append_after_storing(&self, error: StoreError) {
        self.prepare(Operation::Append, Fault::After(error));
    }

    /// Lets this many submissions through before the fault that is prepared next.
    pub fn let_appends_through(&self, count: usize) {
        (0..count).for_each(|_| self.state().script.push(Operation::Append, None));
    }

    /// Fails every submission, with nothing stored, until [`heal`](Self::heal).
    pub fn fail_every_append(&self, error: impl Fn() -> StoreError + Send + 'static) {
        self.state().script.fail_every_append(error);
    }

    /// Takes back every prepared fault that has not happened yet. What is held stays held.
    pub fn heal(&self) {
        self.state().script.clear_faults();
    }

    /// Makes the next load wait at a gate before it reads; that of an open run likewise.
    pub fn hold_next_load(&self, gate: &Gate) {
        self.state().script.hold(Operation::Load, gate);
    }

    /// Makes the next reservation wait at a gate, as a store with a full queue does.
    pub fn hold_next_reserve(&self, gate: &Gate) {
        self.state().script.hold(Operation::Reserve, gate);
    }

    /// Holds submissions back until [`release_appends`](Self::release_appends). As a slow store
    /// does, it owns them already: loads of their conversations wait, and so does `flush`.
    pub fn hold_appends(&self) {
        self.state().is_holding = true;
    }

    /// Hands over what was held back, in order, and holds nothing back any more.
    pub fn release_appends(&self) {
        let mut state = self.state();
        state.is_holding = false;
        while self.release_one(&mut state) {}
    }

    /// Waits until `count` writes are held back.
    pub async fn holding(&self, count: usize) {
        let is_reached = |unreleased: &Unreleased| unreleased.keys.len() >= count;
        let _ = self.shared.unreleased.subscribe().wait_for(is_reached).await;
    }

    /// The process dies: what it has submitted and is not stored yet never will be.
    pub fn die(&self) {
        self.shared.is_dead.store(true, Ordering::Release);
    }

    /// How many loads were asked for, failed ones too; of open runs likewise.
    pub fn loads(&self) -> usize {
        self.state().script.counted(Operation::Load)
    }

    /// How many readings of a head were asked for.
    pub fn heads(&self) -> usize {
        self.state().script.counted(Operation::Head)
    }

    /// How many reservations were asked for.
    pub fn reserves(&self) -> usize {
        self.state().script.counted(Operation::Reserve)
    }

    /// How many questions were put to the record of tool calls, for calls or for totals.
    pub fn queries(&self) -> usize {
        self.state().script.counted(Operation::Invocations)
    }

    /// How many submissions were made.
    pub fn appends(&self) -> usize {
        self.state().script.counted(Operation::Append)
    }

    /// Every write of every submission, failed ones too, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.state().script.writes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, operation: Operation, fault: Fault) {
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
