//! Fault injectors, which decide for every operation of a store which fault occurs.

use tower_chat_core::store::{StoreError, author::Write};

/// Decides for every operation of a [`FaultyStore`](super::FaultyStore) which fault occurs, and is
/// notified of the operation's effects.
///
/// Closures from [`Operation`] to [`Injection`] implement it.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
/// use tower_chat_testkit::{StoreFault, FaultyStore, Injection, Operation};
///
/// // Every load fails, and nothing else does.
/// let store = FaultyStore::with_injector(MemoryStore::new(), |operation| match operation {
///     Operation::Load => Injection::none().with(StoreFault::Before(StoreError::ReadOnly)),
///     _ => Injection::none(),
/// });
/// let key = ConversationKey::new("alice", "chat");
/// assert!(store.load(&key).await.is_err());
/// assert!(store.head(&key).await.is_ok());
/// # }).unwrap();
/// ```
pub trait FaultInjector: Send + Sync + 'static {
    /// Called before an operation. Returns the fault and the delay to inject.
    fn before(&self, operation: Operation) -> Injection;

    /// Called when writes are submitted, before [`before`](Self::before).
    fn submitted(&self, writes: &[Write]) {
        let _ = writes;
    }

    /// Called when a write was stored, or acknowledged as a repetition.
    fn stored(&self, write: &Write) {
        let _ = write;
    }

    /// Called after the effect or the failure of an operation, before its caller receives the
    /// outcome.
    fn after(&self, operation: Operation) {
        let _ = operation;
    }
}

impl<F: Fn(Operation) -> Injection + Send + Sync + 'static> FaultInjector for F {
    fn before(&self, operation: Operation) -> Injection {
        self(operation)
    }
}

/// An operation of a store, named after its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each is a method of `HistoryStore`")]
pub enum Operation {
    Head,
    Load,
    OpenRun,
    OpenRuns,
    Reserve,
    Append,
    Fork,
    Prune,
    Delete,
    List,
    Invocations,
    ToolTotals,
    Summary,
    Conversations,
    Usage,
    Runs,
    MessagesBefore,
    SetDescription,
    Scopes,
    Rows,
    Rewrite,
    Flush,
    Close,
}

/// The injection into one operation: a delay, a fault, both or neither.
#[derive(Debug, Default)]
pub struct Injection {
    pub(super) yields_before: usize,
    pub(super) yields_after: usize,
    pub(super) fault: Option<StoreFault>,
}

/// A fault of an operation.
#[derive(Debug)]
pub enum StoreFault {
    /// The operation fails without an effect.
    Before(StoreError),
    /// This many writes of a submission are stored, then the submission fails. An operation other than a
    /// submission fails without an effect.
    Midway(usize, StoreError),
    /// The operation takes effect, and fails.
    After(StoreError),
    /// The operation has no effect and never returns, as when the process has died.
    Never,
}

impl Injection {
    /// Creates an injection without a delay and a fault.
    pub fn none() -> Self {
        Self::default()
    }

    /// Sets the number of times that the operation yields to other tasks before its effect, and after its
    /// effect.
    #[must_use]
    pub fn delayed(mut self, before: usize, after: usize) -> Self {
        (self.yields_before, self.yields_after) = (before, after);
        self
    }

    /// Sets the fault.
    #[must_use]
    pub fn with(mut self, fault: StoreFault) -> Self {
        self.fault = Some(fault);
        self
    }
}
