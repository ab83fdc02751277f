//! The trait of stores that wrap another store.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    ConversationPage, ConversationQuery, ConversationRows, ConversationSummary, Description, Head,
    History, HistoryStore, InvocationQuery, Invocations, Keep, MessagePage, Pruned, Revision,
    Rewrite, RunSummary, StoreError, StoreHandle, ToolTotals, UsageQuery, UsageTotals,
    author::{OpenRunContent, Slot, Ticket, Write},
};
use crate::{ConversationKey, RunId};

/// A store that wraps another store, and overrides the methods that differ.
///
/// Every method forwards to the inner store until it is overridden. Every type that implements this
/// trait implements [`HistoryStore`]. A wrapper overrides a method to act before or after the
/// method of [`inner`](Self::inner):
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
/// impl<S: HistoryStore> store::StoreWrapper for CountingStore<S> {
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
/// The methods have the names and the contract of those of [`HistoryStore`]. Name this trait by its
/// path, as in the example: if both traits are imported, `wrapper.load(key)` is ambiguous. The same
/// applies inside the implementation: write `self.inner().load(key)` for the inner store, and
/// `HistoryStore::load(self, key)` for the wrapper.
///
/// A wrapper that returns the [`handle`](HistoryStore::handle) of the inner store is the same
/// store, with the same runs in progress and the same outbox. A wrapper that returns a handle of
/// its own is a different store.
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

    /// Forwards [`HistoryStore::open_run`].
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.inner().open_run(key).await
    }

    /// Forwards [`HistoryStore::open_runs`].
    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.inner().open_runs(scope, after, limit).await
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

    /// Forwards [`HistoryStore::fork`].
    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        self.inner().fork(from, to).await
    }

    /// Forwards [`HistoryStore::prune`].
    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.inner().prune(key, keep).await
    }

    /// Forwards [`HistoryStore::delete`].
    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.inner().delete(key).await
    }

    /// Forwards [`HistoryStore::list`].
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.inner().list(scope, after, limit).await
    }

    /// Forwards [`HistoryStore::invocations`].
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.inner().invocations(query).await
    }

    /// Forwards [`HistoryStore::tool_totals`].
    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.inner().tool_totals(query).await
    }

    /// Forwards [`HistoryStore::summary`].
    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.inner().summary(key).await
    }

    /// Forwards [`HistoryStore::conversations`].
    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        self.inner().conversations(query).await
    }

    /// Forwards [`HistoryStore::usage`].
    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        self.inner().usage(query).await
    }

    /// Forwards [`HistoryStore::runs`].
    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.inner().runs(key, after, limit).await
    }

    /// Forwards [`HistoryStore::messages_before`].
    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.inner().messages_before(key, before, limit).await
    }

    /// Forwards [`HistoryStore::set_description`].
    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        self.inner().set_description(key, description, expected_version).await
    }

    /// Forwards [`HistoryStore::scopes`].
    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner().scopes(after, limit).await
    }

    /// Forwards [`HistoryStore::rows`].
    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.inner().rows(key).await
    }

    /// Forwards [`HistoryStore::rewrite`].
    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        self.inner().rewrite(rewrite).await
    }

    /// Forwards [`HistoryStore::flush`].
    async fn flush(&self) -> Result<(), StoreError> {
        self.inner().flush().await
    }

    /// Forwards [`HistoryStore::close`].
    async fn close(&self) -> Result<(), StoreError> {
        self.inner().close().await
    }
}

impl<S: HistoryStore + ?Sized> StoreWrapper for Arc<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
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

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        StoreWrapper::open_run(self, key).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        StoreWrapper::open_runs(self, scope, after, limit).await
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

    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        StoreWrapper::fork(self, from, to).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        StoreWrapper::prune(self, key, keep).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        StoreWrapper::delete(self, key).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        StoreWrapper::list(self, scope, after, limit).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        StoreWrapper::invocations(self, query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        StoreWrapper::tool_totals(self, query).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        StoreWrapper::summary(self, key).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        StoreWrapper::conversations(self, query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        StoreWrapper::usage(self, query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        StoreWrapper::runs(self, key, after, limit).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        StoreWrapper::messages_before(self, key, before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        StoreWrapper::set_description(self, key, description, expected_version).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        StoreWrapper::scopes(self, after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        StoreWrapper::rows(self, key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        StoreWrapper::rewrite(self, rewrite).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        StoreWrapper::flush(self).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        StoreWrapper::close(self).await
    }
}
