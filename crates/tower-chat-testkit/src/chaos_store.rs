//! A store whose every operation may go wrong.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use async_trait::async_trait;
use tokio::{
    sync::{oneshot, watch},
    task::{unconstrained, yield_now},
};
use tower_chat_core::{
    ConversationKey,
    store::{
        AppendError, Head, History, HistoryStore, InvocationQuery, Invocations, Keep, OpenRun,
        OpenRunContent, Pruned, Revision, Slot, StoreError, StoreHandle, Ticket, ToolTotals, Write,
    },
};

/// Any store, with somebody who decides at every operation what goes wrong with it.
///
/// It is what one process sees of the store inside: its [`handle`](HistoryStore::handle) is its own.
/// Two around clones of one store are two processes.
///
/// Operations of the store inside are waited for on the calling thread, so that what happens, and
/// in which order, depends on the decisions alone, whatever threads that store has. An append that
/// is late belongs to the store all the same: a task makes it, in the order of the submissions, and
/// reads wait for it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
/// use tower_chat_testkit::{Chaos, ChaosStore, Fault, Operation, Turn};
/// struct NoLoads;
/// impl Chaos for NoLoads {
///     fn before(&self, operation: Operation) -> Turn {
///         match operation {
///             Operation::Load => {
///                 Turn::at_once().but(Fault::Before(StoreError::backend("read", true, "on fire")))
///             }
///             _ => Turn::at_once(),
///         }
///     }
/// }
/// let store = ChaosStore::new(MemoryStore::new(), NoLoads);
/// let key = ConversationKey::new("alice", "support");
/// assert!(store.load(&key).await.is_err());
/// assert!(store.head(&key).await.is_ok());
/// # });
/// ```
#[derive(Clone)]
pub struct ChaosStore<S> {
    inner: S,
    handle: StoreHandle,
    chaos: Arc<dyn Chaos>,
    is_dead: Arc<AtomicBool>,
    submitted: Arc<AtomicU64>,
    done: watch::Sender<u64>,
}

/// Decides what goes wrong in a [`ChaosStore`], and hears what happened.
pub trait Chaos: Send + Sync + 'static {
    /// An operation is about to begin.
    fn before(&self, operation: Operation) -> Turn;

    /// Writes were submitted; what becomes of them is decided next.
    fn submitted(&self, writes: &[Write]) {
        let _ = writes;
    }

    /// A write was stored, or found to be stored already.
    fn stored(&self, write: &Write) {
        let _ = write;
    }

    /// An operation had its effect, or had none and failed; its caller does not know yet.
    fn after(&self, operation: Operation) {
        let _ = operation;
    }
}

/// What a store is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `head`.
    Head,
    /// `load`.
    Load,
    /// `open_run`.
    OpenRun,
    /// `open_runs`.
    OpenRuns,
    /// `reserve`.
    Reserve,
    /// `append`.
    Append,
    /// `fork`.
    Fork,
    /// `prune`.
    Prune,
    /// `delete`.
    Delete,
    /// `list`.
    List,
    /// `invocations`.
    Invocations,
    /// `tool_totals`.
    ToolTotals,
    /// `flush`.
    Flush,
    /// `close`.
    Close,
}

/// How one operation goes.
#[derive(Debug, Default)]
pub struct Turn {
    yields_before: usize,
    yields_after: usize,
    fault: Option<Fault>,
}

/// What goes wrong with an operation.
#[derive(Debug)]
pub enum Fault {
    /// It fails, and has no effect.
    Before(StoreError),
    /// The first writes of a submission are stored, then it fails; other operations fail without
    /// any effect.
    Midway(usize, StoreError),
    /// It has its effect, and fails.
    After(StoreError),
    /// It has no effect and never comes back: the process is as good as dead.
    Never,
}

impl Turn {
    /// All goes well, at once.
    pub fn at_once() -> Self {
        Self::default()
    }

    /// Lets others go first, so many times before the effect, and so many times after it.
    #[must_use]
    pub fn late(mut self, before: usize, after: usize) -> Self {
        (self.yields_before, self.yields_after) = (before, after);
        self
    }

    /// Goes wrong.
    #[must_use]
    pub fn but(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}

impl<S: HistoryStore> ChaosStore<S> {
    /// The store as a process sees it in which `chaos` reigns.
    pub fn new(inner: S, chaos: impl Chaos) -> Self {
        Self {
            inner,
            handle: StoreHandle::new(),
            chaos: Arc::new(chaos),
            is_dead: Arc::default(),
            submitted: Arc::default(),
            done: watch::Sender::new(0),
        }
    }

    /// The store inside, where nothing goes wrong.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The process dies: what it has submitted and is not stored yet never will be.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::Release);
    }

    async fn read<T>(
        &self,
        operation: Operation,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let submitted = self.submitted.load(Ordering::Acquire);
        let Turn { yields_before, yields_after, fault } = self.chaos.before(operation);
        yields(yields_before).await;
        let _ = self.done.subscribe().wait_for(|done| *done >= submitted).await;
        let outcome = match fault {
            Some(Fault::Never) => std::future::pending().await,
            Some(Fault::Before(error) | Fault::Midway(_, error)) => Err(error),
            Some(Fault::After(error)) => settled(read).and(Err(error)),
            None => settled(read),
        };
        self.chaos.after(operation);
        yields(yields_after).await;
        outcome
    }

    /// Makes the writes, as far as the fault lets them be made.
    fn store(
        &self,
        slot: Slot,
        mut writes: Vec<Write>,
        fault: Option<Fault>,
    ) -> Result<Revision, AppendError> {
        let (completed, error) = match fault {
            Some(Fault::Before(error)) => {
                writes.clear();
                (0, Some(error))
            }
            Some(Fault::Midway(count, error)) => {
                writes.truncate(count);
                (writes.len(), Some(error))
            }
            Some(Fault::After(error)) => (0, Some(error)),
            Some(Fault::Never) => {
                writes.clear();
                (0, Some(StoreError::Closed))
            }
            None => (0, None),
        };
        let mut slot = Some(slot);
        let mut outcome = Ok(Revision::ABSENT);
        for (completed, write) in writes.into_iter().enumerate() {
            let slot = slot.take().unwrap_or_else(Slot::unbounded);
            outcome = settled(self.inner.append(slot, vec![write.clone()]))
                .map_err(|error| AppendError { completed, source: error.source });
            if outcome.is_err() {
                break;
            }
            self.chaos.stored(&write);
        }
        self.chaos.after(Operation::Append);
        match error {
            Some(source) => outcome.and(Err(AppendError { completed, source })),
            None => outcome,
        }
    }
}

/// Waits on this thread.
fn settled<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    // The task's budget is not renewed before this returns.
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

async fn yields(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

impl<S: fmt::Debug> fmt::Debug for ChaosStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChaosStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: HistoryStore + Clone> HistoryStore for ChaosStore<S> {
    fn handle(&self) -> &StoreHandle {
        &self.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.read(Operation::Head, self.inner.head(key)).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.read(Operation::Load, self.inner.load(key)).await
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.read(Operation::OpenRun, self.inner.open_run(key)).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(ConversationKey, OpenRun)>, StoreError> {
        self.read(Operation::OpenRuns, self.inner.open_runs(scope, after, limit)).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.read(Operation::Reserve, self.inner.reserve()).await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        self.chaos.submitted(&writes);
        let Turn { yields_before, yields_after, fault } = self.chaos.before(Operation::Append);
        let is_dead = matches!(fault, Some(Fault::Never)) || self.is_dead.load(Ordering::Acquire);
        let turn = self.submitted.fetch_add(1, Ordering::AcqRel);
        if yields_before == 0 && *self.done.borrow() == turn && !is_dead {
            let outcome = self.store(slot, writes, fault);
            self.done.send_modify(|done| *done += 1);
            if yields_after == 0 {
                return Ticket::done(outcome);
            }
            return Ticket::watching(async move {
                yields(yields_after).await;
                outcome
            });
        }
        let (sender, outcome) = oneshot::channel();
        let store = self.clone();
        let late = async move {
            if is_dead {
                std::future::pending::<()>().await;
            }
            let _ = store.done.subscribe().wait_for(|done| *done == turn).await;
            yields(yields_before).await;
            if store.is_dead.load(Ordering::Acquire) {
                std::future::pending::<()>().await;
            }
            let outcome = store.store(slot, writes, fault);
            store.done.send_modify(|done| *done += 1);
            yields(yields_after).await;
            // Nobody may wait for it any more.
            let _ = sender.send(outcome);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(late)),
            // The process ends, and takes with it what nobody was told of.
            Err(_) => drop(late),
        }
        Ticket::waiting(outcome)
    }

    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        self.read(Operation::Fork, self.inner.fork(from, to)).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.handle.at_rest(key)?;
        self.read(Operation::Prune, self.inner.prune(key, keep)).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.read(Operation::Delete, self.inner.delete(key)).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.read(Operation::List, self.inner.list(scope, after, limit)).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.read(Operation::Invocations, self.inner.invocations(query)).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.read(Operation::ToolTotals, self.inner.tool_totals(query)).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.read(Operation::Flush, self.inner.flush()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.read(Operation::Close, self.inner.close()).await
    }
}
