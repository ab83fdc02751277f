//! The trait of stores that wrap another store.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    CallSelection, Directory, Head, History, HistoryStore, Invocations, Journal, Maintenance,
    StoreError, StoreHandle, Summaries, ToolCallQueries,
    author::{LoadFrom, Slot, Ticket, Write},
};
use crate::ConversationKey;

/// A store that wraps another store, and overrides the methods that differ.
///
/// A method that the wrapper does not override forwards to the inner store. The methods that return
/// [capabilities](super::Capability) are an exception: the wrapper has only the capabilities that
/// it returns itself. Every type that implements this trait implements [`HistoryStore`]. A wrapper
/// overrides a method to act before or after the method of [`inner`](Self::inner):
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use async_trait::async_trait;
/// use tower_chat_core::{
///     ConversationKey,
///     store::{self, History, HistoryStore, StoreError},
/// };
///
/// struct CountingStore<S> {
///     inner: S,
///     loads: AtomicUsize,
/// }
///
/// #[async_trait]
/// impl<S: HistoryStore> store::author::StoreWrapper for CountingStore<S> {
///     type Inner = S;
///
///     fn inner(&self) -> &S {
///         &self.inner
///     }
///
///     async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
///         self.loads.fetch_add(1, Ordering::Relaxed);
///         self.inner().load(key).await
///     }
/// }
/// ```
///
/// Each method has the name and the contract of the method of [`HistoryStore`] to which it
/// forwards. Name this trait by its path, as in the example: if both traits are imported,
/// `wrapper.load(key)` is ambiguous. The same applies inside the implementation: write
/// `self.inner().load(key)` for the inner store, and `HistoryStore::load(self, key)` for the
/// wrapper.
///
/// A wrapper that returns the [`handle`](HistoryStore::handle) of the inner store counts as the
/// same store as the inner one: both share the runs in progress and the outbox. A wrapper that
/// returns another handle counts as a different store.
#[async_trait]
pub trait StoreWrapper: Send + Sync + 'static {
    /// The type of the inner store.
    type Inner: HistoryStore + ?Sized;

    /// Returns the inner store.
    fn inner(&self) -> &Self::Inner;

    /// Forwards [`HistoryStore::handle`].
    fn handle(&self) -> &StoreHandle {
        self.inner().handle()
    }

    /// Forwards [`HistoryStore::head`].
    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.inner().head(key).await
    }

    /// Forwards [`HistoryStore::load`].
    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.inner().load(key).await
    }

    /// Loads all messages with [`load`](Self::load). A wrapper that only forwards loads may forward
    /// [`HistoryStore::load_from`] too.
    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let _ = from;
        StoreWrapper::load(self, key).await
    }

    /// Forwards [`HistoryStore::calls`].
    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.inner().calls(key, which).await
    }

    /// Forwards [`HistoryStore::reserve`].
    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.inner().reserve().await
    }

    /// Forwards [`HistoryStore::try_reserve`].
    fn try_reserve(&self) -> Option<Slot> {
        self.inner().try_reserve()
    }

    /// Forwards [`HistoryStore::append`].
    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        self.inner().append(slot, writes)
    }

    /// Forwards [`HistoryStore::delete`].
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.inner().delete(key).await
    }

    /// Forwards [`HistoryStore::flush`].
    async fn flush(&self) -> Result<(), StoreError> {
        self.inner().flush().await
    }

    /// Forwards [`HistoryStore::close`].
    async fn close(&self) -> Result<(), StoreError> {
        self.inner().close().await
    }

    /// Returns the capability [`HistoryStore::journal`] of the wrapper. A wrapper that leaves this
    /// capability unchanged returns that of the inner store. The default is `None`.
    fn journal(&self) -> Option<&dyn Journal> {
        None
    }

    /// Returns the capability [`HistoryStore::directory`] of the wrapper. A wrapper that leaves
    /// this capability unchanged returns that of the inner store. The default is `None`.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }

    /// Returns the capability [`HistoryStore::tool_calls`] of the wrapper. A wrapper that leaves
    /// this capability unchanged returns that of the inner store. The default is `None`.
    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        None
    }

    /// Returns the capability [`HistoryStore::maintenance`] of the wrapper. A wrapper that leaves
    /// this capability unchanged returns that of the inner store. The default is `None`.
    fn maintenance(&self) -> Option<&dyn Maintenance> {
        None
    }

    /// Returns the capability [`HistoryStore::summaries`] of the wrapper. A wrapper that leaves
    /// this capability unchanged returns that of the inner store. The default is `None`.
    fn summaries(&self) -> Option<&dyn Summaries> {
        None
    }
}

#[async_trait]
impl<S: HistoryStore + ?Sized> StoreWrapper for Arc<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        S::load_from(self, key, from).await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        S::journal(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        S::directory(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        S::tool_calls(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        S::maintenance(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        S::summaries(self)
    }
}

#[async_trait]
impl<W: StoreWrapper> HistoryStore for W {
    fn handle(&self) -> &StoreHandle {
        StoreWrapper::handle(self)
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        StoreWrapper::head(self, key).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        StoreWrapper::load(self, key).await
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        StoreWrapper::load_from(self, key, from).await
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        StoreWrapper::calls(self, key, which).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        StoreWrapper::reserve(self).await
    }

    fn try_reserve(&self) -> Option<Slot> {
        StoreWrapper::try_reserve(self)
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        StoreWrapper::append(self, slot, writes)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        StoreWrapper::delete(self, key).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        StoreWrapper::flush(self).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        StoreWrapper::close(self).await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        StoreWrapper::journal(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        StoreWrapper::directory(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        StoreWrapper::tool_calls(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        StoreWrapper::maintenance(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        StoreWrapper::summaries(self)
    }
}
