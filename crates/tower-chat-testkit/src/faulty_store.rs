//! A store that fails on command.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tower_chat_core::{
    ConversationKey,
    store::{
        AppendError, Head, History, HistoryStore, InvocationQuery, Invocations, Keep, OpenRun,
        OpenRunContent, Pruned, Revision, Slot, StoreError, StoreHandle, Ticket, ToolTotals, Write,
    },
};

use crate::Gate;

/// Any store, made to fail or to wait when a test says so, and keeping count of what is asked.
///
/// It is the store it wraps: their [`handle`](HistoryStore::handle) is the same, unless it stands
/// for [another process](Self::in_another_process). Clones share their faults and counts. While nothing is ordered, it adds nothing.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
/// use tower_chat_testkit::FaultyStore;
/// let store = FaultyStore::new(MemoryStore::new());
/// store.fail_next_load(StoreError::backend("read", true, "disk on fire"));
/// let key = ConversationKey::new("alice", "support");
/// assert!(store.load(&key).await.is_err());
/// assert!(store.load(&key).await.is_ok());
/// assert_eq!(store.loads(), 2);
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct FaultyStore<S> {
    inner: S,
    handle: Option<StoreHandle>,
    permits: Option<Arc<Semaphore>>,
    shared: Arc<Shared>,
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    held: watch::Sender<Vec<ConversationKey>>,
}

#[derive(Default)]
struct Orders {
    loads: Asked,
    heads: Asked,
    reserves: Asked,
    queries: Asked,
    appends: usize,
    writes: Vec<Write>,
    /// `None` lets one through.
    append_faults: VecDeque<Option<AppendFault>>,
    append_fault_always: Option<Box<dyn Fn() -> StoreError + Send>>,
    load_gate: Option<Gate>,
    reserve_gate: Option<Gate>,
    holding: bool,
    held: Vec<Held>,
}

/// How often something was asked for, and how the next times fail.
#[derive(Debug, Default)]
struct Asked {
    count: usize,
    faults: VecDeque<StoreError>,
}

#[derive(Debug)]
struct AppendFault {
    error: StoreError,
    stored: Stored,
}

/// How much of a submission that fails is stored.
#[derive(Debug, Clone, Copy)]
enum Stored {
    First(usize),
    All,
}

/// A submission that waits for its release.
#[derive(Debug)]
struct Held {
    slot: Slot,
    writes: Vec<Write>,
    ticket: oneshot::Sender<Ticket>,
}

impl<S: HistoryStore> FaultyStore<S> {
    /// A store with no faults yet.
    pub fn new(inner: S) -> Self {
        Self { inner, handle: None, permits: None, shared: Arc::default(), kept: None }
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
        self.kept = Some(Arc::new(value));
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
    pub fn in_another_process(&self) -> Self
    where
        S: Clone,
    {
        Self { handle: Some(StoreHandle::new()), ..self.clone() }
    }

    /// The store inside, to look at without being counted.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Fails a load; called again, the one after it too.
    pub fn fail_next_load(&self, error: StoreError) {
        self.orders().loads.faults.push_back(error);
    }

    /// Fails a reading of the head.
    pub fn fail_next_head(&self, error: StoreError) {
        self.orders().heads.faults.push_back(error);
    }

    /// Fails a reservation.
    pub fn fail_next_reserve(&self, error: StoreError) {
        self.orders().reserves.faults.push_back(error);
    }

    /// Fails a question to the record of tool calls, for calls or for totals.
    pub fn fail_next_query(&self, error: StoreError) {
        self.orders().queries.faults.push_back(error);
    }

    /// Fails a submission with nothing of it stored.
    pub fn fail_next_append(&self, error: StoreError) {
        self.fail_next_append_at(0, error);
    }

    /// Fails a submission at a write, counted from 0; those before it are stored.
    pub fn fail_next_append_at(&self, write: usize, error: StoreError) {
        let fault = AppendFault { error, stored: Stored::First(write) };
        self.orders().append_faults.push_back(Some(fault));
    }

    /// Stores a submission and says that it failed, at its first write, as a lost connection does.
    pub fn fail_next_append_after_storing(&self, error: StoreError) {
        let fault = AppendFault { error, stored: Stored::All };
        self.orders().append_faults.push_back(Some(fault));
    }

    /// Lets this many submissions through before the fault that is ordered next.
    pub fn let_appends_through(&self, count: usize) {
        self.orders().append_faults.extend((0..count).map(|_| None));
    }

    /// Fails every submission, with nothing stored, until [`heal`](Self::heal).
    pub fn fail_every_append(&self, error: impl Fn() -> StoreError + Send + 'static) {
        self.orders().append_fault_always = Some(Box::new(error));
    }

    /// Takes back every fault that has not happened yet. What is held stays held.
    pub fn heal(&self) {
        let mut orders = self.orders();
        orders.loads.faults.clear();
        orders.heads.faults.clear();
        orders.reserves.faults.clear();
        orders.queries.faults.clear();
        orders.append_faults.clear();
        orders.append_fault_always = None;
    }

    /// Makes the next load wait at a gate before it reads; that of an open run likewise.
    pub fn hold_next_load(&self, gate: &Gate) {
        self.orders().load_gate = Some(gate.clone());
    }

    /// Makes the next reservation wait at a gate, as a store with a full queue does.
    pub fn hold_next_reserve(&self, gate: &Gate) {
        self.orders().reserve_gate = Some(gate.clone());
    }

    /// Keeps submissions back until [`release_appends`](Self::release_appends). As a slow store
    /// does, it owns them already: loads of their conversations wait, and so does `flush`.
    pub fn hold_appends(&self) {
        self.orders().holding = true;
    }

    /// Hands over what was kept back, in order, and keeps nothing back any more.
    pub fn release_appends(&self) {
        let mut orders = self.orders();
        orders.holding = false;
        for held in std::mem::take(&mut orders.held) {
            let ticket = self.submit(&mut orders, held.slot, held.writes);
            // Nobody may wait for it any more; the store has the writes all the same.
            let _ = held.ticket.send(ticket);
        }
        self.shared.held.send_modify(Vec::clear);
    }

    /// Waits until `count` writes are kept back.
    pub async fn holding(&self, count: usize) {
        let _ = self.shared.held.subscribe().wait_for(|held| held.len() >= count).await;
    }

    /// How many loads were asked for, failed ones too; of open runs likewise.
    pub fn loads(&self) -> usize {
        self.orders().loads.count
    }

    /// How many readings of a head were asked for.
    pub fn heads(&self) -> usize {
        self.orders().heads.count
    }

    /// How many reservations were asked for.
    pub fn reserves(&self) -> usize {
        self.orders().reserves.count
    }

    /// How many questions were put to the record of tool calls, for calls or for totals.
    pub fn queries(&self) -> usize {
        self.orders().queries.count
    }

    /// How many submissions were made.
    pub fn appends(&self) -> usize {
        self.orders().appends
    }

    /// Every write of every submission, failed ones too, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.orders().writes.clone()
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits to the store inside, with the fault that is due.
    fn submit(&self, orders: &mut Orders, slot: Slot, mut writes: Vec<Write>) -> Ticket {
        let Some(AppendFault { error, stored }) = orders.next_append_fault() else {
            return self.inner.append(slot, writes);
        };
        let completed = match stored {
            Stored::First(count) => {
                writes.truncate(count);
                writes.len()
            }
            Stored::All => 0,
        };
        if writes.is_empty() {
            return Ticket::done(Err(AppendError { completed, source: error }));
        }
        let ticket = self.inner.append(slot, writes);
        Ticket::watching(async move {
            ticket.await?;
            Err(AppendError { completed, source: error })
        })
    }

    /// Counts a load, and waits where one has to.
    async fn load_is_due(&self) -> Result<(), StoreError> {
        let (outcome, gate) = {
            let mut orders = self.orders();
            (orders.loads.next(), orders.load_gate.take())
        };
        if let Some(gate) = gate {
            gate.pass().await;
        }
        outcome
    }

    /// Waits until no write of the conversations is kept back.
    async fn released(&self, concerns: impl Fn(&ConversationKey) -> bool) {
        let none = |held: &Vec<ConversationKey>| !held.iter().any(&concerns);
        let _ = self.shared.held.subscribe().wait_for(none).await;
    }
}

impl Orders {
    fn next_append_fault(&mut self) -> Option<AppendFault> {
        match self.append_faults.pop_front() {
            Some(ordered) => ordered,
            None => {
                let error = self.append_fault_always.as_ref()?();
                Some(AppendFault { error, stored: Stored::First(0) })
            }
        }
    }
}

impl Asked {
    fn next(&mut self) -> Result<(), StoreError> {
        self.count += 1;
        self.faults.pop_front().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders")
            .field("loads", &self.loads)
            .field("heads", &self.heads)
            .field("reserves", &self.reserves)
            .field("queries", &self.queries)
            .field("appends", &self.appends)
            .field("append_faults", &self.append_faults)
            .field("holding", &self.holding)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: HistoryStore> HistoryStore for FaultyStore<S> {
    fn handle(&self) -> &StoreHandle {
        self.handle.as_ref().unwrap_or_else(|| self.inner.handle())
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.orders().heads.next()?;
        self.released(|held| held == key).await;
        self.inner.head(key).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.load_is_due().await?;
        self.released(|held| held == key).await;
        self.inner.load(key).await
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.load_is_due().await?;
        self.released(|held| held == key).await;
        self.inner.open_run(key).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(ConversationKey, OpenRun)>, StoreError> {
        self.released(|held| held.scope() == scope).await;
        self.inner.open_runs(scope, after, limit).await
    }

    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        self.released(|held| held == from || held == to).await;
        self.inner.fork(from, to).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        let (outcome, gate) = {
            let mut orders = self.orders();
            (orders.reserves.next(), orders.reserve_gate.take())
        };
        if let Some(gate) = gate {
            gate.pass().await;
        }
        outcome?;
        let permit = match &self.permits {
            Some(permits) => permits.clone().acquire_owned().await.ok(),
            None => None,
        };
        Ok(with_permit(permit, self.inner.reserve().await?))
    }

    fn try_reserve(&self) -> Option<Slot> {
        let mut orders = self.orders();
        if orders.reserve_gate.is_some() || !orders.reserves.faults.is_empty() {
            return None;
        }
        let permit = match &self.permits {
            Some(permits) => Some(permits.clone().try_acquire_owned().ok()?),
            None => None,
        };
        let slot = self.inner.try_reserve()?;
        orders.reserves.count += 1;
        Some(with_permit(permit, slot))
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let mut orders = self.orders();
        orders.appends += 1;
        orders.writes.extend(writes.iter().cloned());
        if !orders.holding {
            return self.submit(&mut orders, slot, writes);
        }
        let keys: Vec<_> = writes.iter().map(|write| write.key().clone()).collect();
        let (ticket, receiver) = oneshot::channel::<Ticket>();
        orders.held.push(Held { slot, writes, ticket });
        self.shared.held.send_modify(|held| held.extend(keys));
        Ticket::watching(async move {
            match receiver.await {
                Ok(ticket) => ticket.await,
                Err(_) => Err(AppendError { completed: 0, source: StoreError::Closed }),
            }
        })
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.released(|held| held == key).await;
        self.inner.prune(key, keep).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.released(|held| held == key).await;
        self.inner.delete(key).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.released(|held| held.scope() == scope).await;
        self.inner.list(scope, after, limit).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.orders().queries.next()?;
        self.released(|held| may_concern(query, held)).await;
        self.inner.invocations(query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.orders().queries.next()?;
        self.released(|held| may_concern(query, held)).await;
        self.inner.tool_totals(query).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.released(|_| true).await;
        self.inner.flush().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.released(|_| true).await;
        self.inner.close().await
    }
}

/// A slot of the store inside that takes a permit here too.
fn with_permit(permit: Option<OwnedSemaphorePermit>, slot: Slot) -> Slot {
    match permit {
        Some(permit) => Slot::guarded((permit, slot)),
        None => slot,
    }
}

/// Whether a query may ask for calls of a conversation.
fn may_concern(query: &InvocationQuery, key: &ConversationKey) -> bool {
    query.scope == key.scope() && query.conversation.as_ref().is_none_or(|id| id == key.id())
}
