//! Faults that are decided at every operation.

use tower_chat_core::store::{StoreError, author::Write};

/// Decides at every operation of a [`FaultyStore`](super::FaultyStore) what goes wrong with it, and
/// is told what happened.
///
/// A closure from [`Operation`] to [`Injection`] is one.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::{HistoryStore, StoreError}};
/// use tower_chat_testkit::{Fault, FaultyStore, Injection, Operation};
///
/// // Every load fails, and nothing else does.
/// let store = FaultyStore::with_injector(MemoryStore::new(), |operation| match operation {
///     Operation::Load => Injection::none().with(Fault::Before(StoreError::ReadOnly)),
///     _ => Injection::none(),
/// });
/// let key = ConversationKey::new("alice", "chat");
/// assert!(store.load(&key).await.is_err());
/// assert!(store.head(&key).await.is_ok());
/// # }).unwrap();
/// ```
pub trait FaultInjector: Send + Sync + 'static {
    /// An operation is about to begin.
    fn before(&self, operation: Operation) -> Injection;

    /// Writes were submitted; [`before`](Self::before) decides next what becomes of them.
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

impl<F: Fn(Operation) -> Injection + Send + Sync + 'static> FaultInjector for F {
    fn before(&self, operation: Operation) -> Injection {
        self(operation)
    }
}

/// What a store is asked to do, by the name of the method.
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

/// What is injected into one operation: a delay, a fault, both or neither.
#[derive(Debug, Default)]
pub struct Injection {
    pub(super) yields_before: usize,
    pub(super) yields_after: usize,
    pub(super) fault: Option<Fault>,
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
    /// It has no effect and never returns, as when the process has died.
    Never,
}

impl Injection {
    /// The operation goes to the store at once.
    pub fn none() -> Self {
        Self::default()
    }

    /// Yields to other tasks this many times before the effect, and this many times after it.
    #[must_use]
    pub fn delayed(mut self, before: usize, after: usize) -> Self {
        (self.yields_before, self.yields_after) = (before, after);
        self
    }

    /// Injects a fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}
