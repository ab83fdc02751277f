//! [`CachingStore`], the store that caches conversations of another store.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::FutureExt;
use tower_chat_core::{
    ConversationKey,
    store::{
        AddedSummary, ConversationRows, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, Journal, Keep, Maintenance, Pruned, Revision, Rewrite, StoreError,
        Summaries, ToolCallQueries,
        author::{AppendError, LoadFrom, Slot, StoreWrapper, Ticket, Write},
    },
};

use crate::{
    CacheOptions, CacheStatistics, Revalidation,
    cached::{ReadAt, covers, is_same_history, with_head},
    conversations::Conversations,
    statistics::Counters,
};

/// Caches conversations of another store in memory; see [the crate](crate).
///
/// The [`handle`](HistoryStore::handle) is that of the inner store. Clones share the cache.
///
/// Concurrent loads of one conversation share one read of the inner store. If the caller that began
/// the load drops its future, another waiting caller drives the load.
pub struct CachingStore<S>(Arc<Shared<S>>);

struct Shared<S> {
    inner: Arc<S>,
    options: CacheOptions,
    conversations: Arc<Conversations>,
    counters: Counters,
}

/// Clones share the inner store, which need not be [`Clone`] itself.
impl<S> Clone for CachingStore<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: HistoryStore> CachingStore<S> {
    /// Wraps a store in a cache, with the [defaults](CacheOptions::new).
    pub fn new(inner: S) -> Self {
        Self::with_options(inner, CacheOptions::new())
    }

    /// Wraps a store in a cache with these options.
    pub fn with_options(inner: S, options: CacheOptions) -> Self {
        let conversations = Arc::new(Conversations::new(options.max_bytes));
        let (inner, counters) = (Arc::new(inner), Counters::default());
        Self(Arc::new(Shared { inner, options, conversations, counters }))
    }

    /// Returns the inner store. For the cache, a write made directly to the inner store is like a
    /// write of another process; see [`Revalidation`].
    pub fn inner(&self) -> &S {
        &self.0.inner
    }

    fn inner_store(&self) -> &dyn HistoryStore {
        &*self.0.inner
    }

    /// Removes a conversation from the cache, for example after another process changed it, or
    /// after its encryption key was erased.
    pub fn forget(&self, key: &ConversationKey) {
        drop(self.0.conversations.change(key));
    }

    /// Returns the hits, the misses and the size of the cache.
    pub fn statistics(&self) -> CacheStatistics {
        let (conversations, bytes) = self.0.conversations.size();
        CacheStatistics { conversations, bytes, ..self.0.counters.statistics() }
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn conversations(&self) -> &Conversations {
        &self.0.conversations
    }

    fn now(&self) -> ReadAt {
        ReadAt { tick: self.0.conversations.tick(), time: self.0.options.now() }
    }

    /// Returns whether a lookup at `now` may use state that was read at `read`, without
    /// revalidation.
    fn is_fresh(&self, read: ReadAt, now: ReadAt) -> bool {
        match self.0.options.revalidation {
            Revalidation::Never => true,
            Revalidation::Always => read.tick >= now.tick,
            Revalidation::After(age) => now.time.saturating_duration_since(read.time) < age,
        }
    }

    async fn read_head(&self, key: &ConversationKey, now: ReadAt) -> Result<Head, StoreError> {
        let load_guard = self.0.conversations.read(key, now);
        let head = self.inner().head(key).await?;
        load_guard.record_head(&head);
        Ok(head)
    }

    /// Returns the cached history or its part, if it contains the messages of the load. Unless the
    /// history is fresh, first compares the history with the head in the inner store.
    async fn cached_history(
        &self,
        key: &ConversationKey,
        from: Option<&LoadFrom>,
        now: ReadAt,
    ) -> Result<Option<History>, StoreError> {
        let cached = self.0.conversations.get(key).filter(|cached| cached.covers(from));
        let Some(cached) = cached else { return Ok(None) };
        if self.is_fresh(cached.read, now)
            && let Some(history) = cached.history()
        {
            self.0.counters.hit();
            return Ok(Some(history));
        }
        let head = self.read_head(key, now).await?;
        let history = cached.history_at(&head).filter(|history| covers(history, &head, from));
        if history.is_some() {
            self.0.counters.revalidated();
        }
        Ok(history)
    }

    async fn history(
        &self,
        key: &ConversationKey,
        from: Option<&LoadFrom>,
    ) -> Result<History, StoreError> {
        let now = self.now();
        if let Some(history) = self.cached_history(key, from, now).await? {
            return Ok(history);
        }
        self.0.counters.miss();
        let began = self.now();
        let is_fresh = |read| self.is_fresh(read, now);
        let shared_load = self.0.conversations.load(key, from, began, is_fresh, |load_guard| {
            let (inner, key, from) = (self.0.inner.clone(), key.clone(), from.cloned());
            let load = async move {
                let history = load(&*inner, &key, from.as_ref()).await?;
                load_guard.record_history(&history);
                Ok(history)
            };
            load.boxed()
        });
        let history = shared_load.load.await?;
        if self.is_fresh(shared_load.read, now) {
            return Ok(history);
        }
        // The shared load began before this call. Its result may therefore lack a write of another
        // process that was stored before this call.
        let head = self.inner().head(key).await?;
        match is_same_history(&history.head, &head) && covers(&history, &head, from) {
            true => Ok(with_head(&history, &head)),
            false => load(self.inner(), key, from).await,
        }
    }
}

async fn load(
    store: &impl HistoryStore,
    key: &ConversationKey,
    from: Option<&LoadFrom>,
) -> Result<History, StoreError> {
    match from {
        Some(from) => store.load_from(key, from).await,
        None => store.load(key).await,
    }
}

#[async_trait]
impl<S: HistoryStore> StoreWrapper for CachingStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.0.inner
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let now = self.now();
        let cached = self.0.conversations.get(key);
        let fresh = cached.as_ref().filter(|cached| self.is_fresh(cached.read, now));
        if let Some(head) = fresh.and_then(|cached| cached.head()) {
            self.0.counters.hit();
            return Ok(head);
        }
        let head = self.read_head(key, now).await?;
        match cached.is_some_and(|cached| cached.history_at(&head).is_some()) {
            true => self.0.counters.revalidated(),
            false => self.0.counters.miss(),
        }
        Ok(head)
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.history(key, None).await
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        self.history(key, Some(from)).await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let expected = writes.last().map(Write::result);
        let mut submission = self.0.conversations.submit(&writes);
        let mut ticket = self.inner().append(slot, writes);
        let is_stored = move |outcome: &Result<Revision, AppendError>| match outcome {
            Ok(revision) => expected == Some(*revision),
            Err(_) => false,
        };
        // If the inner store writes synchronously, the outcome is already known, and no future has
        // to observe the ticket.
        if let Some(outcome) = (&mut ticket).now_or_never() {
            submission.settled(is_stored(&outcome));
            return Ticket::done(outcome);
        }
        submission.submitted();
        Ticket::watching(async move {
            let outcome = ticket.await;
            submission.settled(is_stored(&outcome));
            outcome
        })
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let _changing = self.0.conversations.change(key);
        self.inner().delete(key).await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.inner().maintenance()?;
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        self.inner().summaries()?;
        Some(self)
    }
}

#[async_trait]
impl<S: HistoryStore> Summaries for CachingStore<S> {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.inner_store().history_summaries(key).await
    }

    /// Returns the summary with an id. If the cached head contains this id and the summary was read
    /// before, returns the cached summary, because a summary never changes.
    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        let cached = self.0.conversations.get(key);
        if let Some(summary) = cached.as_ref().and_then(|cached| cached.summary(id)) {
            return Ok(Some(summary.clone()));
        }
        let load_guard = self.0.conversations.read(key, self.now());
        let summary = self.inner_store().history_summary(key, id).await?;
        if let Some(summary) = &summary {
            load_guard.record_summary(summary.clone());
        }
        Ok(summary)
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let submission = self.0.conversations.change_summary(key);
        let outcome = self.inner_store().add_summary(key, summary, rewrites).await;
        submission.settled(outcome.is_ok());
        outcome
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let submission = self.0.conversations.change_summary(key);
        let outcome = self.inner_store().remove_summary(key, id).await;
        submission.settled(outcome.is_ok());
        outcome
    }
}

#[async_trait]
impl<S: HistoryStore> Maintenance for CachingStore<S> {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let _changing = self.0.conversations.change(to);
        self.inner_store().fork_at(from, before, to).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        let _changing = self.0.conversations.change(key);
        self.inner_store().prune(key, keep).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let _changing = self.0.conversations.change(&rewrite.key);
        self.inner_store().rewrite(rewrite).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner_store().scopes(after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.inner_store().rows(key).await
    }
}

impl<S> fmt::Debug for CachingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingStore")
            .field("options", &self.0.options)
            .field("conversations", &self.0.conversations)
            .finish_non_exhaustive()
    }
}
