//! [`FaultInjector`], which selects the fault of each operation of a store.

use tower_chat_core::store::{StoreError, author::Write};

/// Selects the fault of each operation of a [`FaultyStore`](super::FaultyStore). The store also
/// calls the injector when an operation has taken effect.
///
/// Every closure that takes an [`Operation`] and returns an [`Injection`] implements this trait.
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
    /// Called before an operation. Returns the fault and the delays to inject.
    fn before(&self, operation: Operation) -> Injection;

    /// Called with the writes of each `append`. The store calls [`before`](Self::before) after this
    /// method.
    fn submitted(&self, writes: &[Write]) {
        let _ = writes;
    }

    /// Called when the inner store has stored a write, or has reported that a repeated write is
    /// already stored.
    fn stored(&self, write: &Write) {
        let _ = write;
    }

    /// Called after an operation has taken effect or failed, and before the caller of the operation
    /// receives the outcome.
    fn after(&self, operation: Operation) {
        let _ = operation;
    }
}

impl<F: Fn(Operation) -> Injection + Send + Sync + 'static> FaultInjector for F {
    fn before(&self, operation: Operation) -> Injection {
        self(operation)
    }
}

/// An operation of a store. Each variant has the name of a method of the store.
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
    HistorySummaries,
    HistorySummary,
    AddSummary,
    RemoveSummary,
    Flush,
    Close,
}

/// The fault and the delays of one operation. Both are optional.
#[derive(Debug, Default)]
pub struct Injection {
    pub(super) yields_before: usize,
    pub(super) yields_after: usize,
    pub(super) fault: Option<StoreFault>,
}

/// A fault of an operation.
#[derive(Debug)]
pub enum StoreFault {
    /// The operation fails with this error and has no effect.
    Before(StoreError),
    /// An append fails with this error after this number of its writes were stored. Any other
    /// operation fails without an effect.
    Midway(usize, StoreError),
    /// The operation takes effect, but returns this error.
    After(StoreError),
    /// The operation has no effect and its future never completes, as if the process had died.
    Never,
}

impl Injection {
    /// Creates an injection without delays and without a fault.
    pub fn none() -> Self {
        Self::default()
    }

    /// Delays the operation: it yields to other tasks `before` times before it takes effect, and
    /// `after` times afterwards.
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
