//! The store.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt};
use tower_chat_core::{
    ConversationKey,
    store::{
        AppendError, Head, History, HistoryStore, InvocationQuery, Invocations, Keep, OpenRun,
        OpenRunContent, Pruned, Revision, Slot, StoreError, StoreHandle, Ticket, ToolTotals, Write,
    },
};

use crate::{
    CacheOptions, CacheStatistics, Revalidation,
    cached::{ReadAt, is_same_history, with_head},
    conversations::Conversations,
    statistics::Counters,
};

/// Keeps conversations of another store in memory; see [the crate](crate).
///
/// It is the store it is put around: their [`handle`](HistoryStore::handle) is the same. Clones
/// share what is kept.
///
/// Loads of one conversation that come at the same time read it once. A load that is dropped is
/// finished by whoever waits for it too.
pub struct CachingStore<S>(Arc<Shared<S>>);

struct Shared<S> {
    inner: Arc<S>,
    options: CacheOptions,
    conversations: Arc<Conversations>,
    counters: Counters,
}

/// Clones share the store inside, which need not be [`Clone`] itself.
impl<S> Clone for CachingStore<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: HistoryStore> CachingStore<S> {
    /// A cache around a store, with the [defaults](CacheOptions::new).
    pub fn new(inner: S) -> Self {
        Self::with_options(inner, CacheOptions::new())
    }

    /// A cache around a store.
    pub fn with_options(inner: S, options: CacheOptions) -> Self {
        let conversations = Arc::new(Conversations::new(options.max_bytes));
        let (inner, counters) = (Arc::new(inner), Counters::default());
        Self(Arc::new(Shared { inner, options, conversations, counters }))
    }

    /// The store inside. What is written to it directly is noticed as what another process writes.
    pub fn inner(&self) -> &S {
        &self.0.inner
    }

    /// Forgets what is kept of a conversation, such as when its store tells that it was changed, or
    /// when the key that encrypts it was erased.
    pub fn forget(&self, key: &ConversationKey) {
        drop(self.0.conversations.change(key));
    }

    /// How often the cache could answer, and how full it is.
    pub fn statistics(&self) -> CacheStatistics {
        let (conversations, bytes) = self.0.conversations.size();
        CacheStatistics { conversations, bytes, ..self.0.counters.statistics() }
    }

    fn now(&self) -> ReadAt {
        ReadAt { tick: self.0.conversations.tick(), time: self.0.options.now() }
    }

    /// Whether what was read then may be used now without asking again.
    fn is_fresh(&self, read: ReadAt, now: ReadAt) -> bool {
        match self.0.options.revalidation {
            Revalidation::Never => true,
            Revalidation::Always => read.tick >= now.tick,
            Revalidation::After(age) => now.time.saturating_duration_since(read.time) < age,
        }
    }

    /// Reads the head, and learns from it.
    async fn read_head(&self, key: &ConversationKey, now: ReadAt) -> Result<Head, StoreError> {
        let reading = self.0.conversations.read(key, now);
        let head = self.0.inner.head(key).await?;
        reading.saw_head(&head);
        Ok(head)
    }

    /// The history that is kept, if it may be used, or is as it was.
    async fn kept(
        &self,
        key: &ConversationKey,
        now: ReadAt,
    ) -> Result<Option<History>, StoreError> {
        let Some(cached) = self.0.conversations.get(key) else { return Ok(None) };
        let Some(history) = cached.history() else { return Ok(None) };
        if self.is_fresh(cached.read, now) {
            self.0.counters.hit();
            return Ok(Some(history));
        }
        let head = self.read_head(key, now).await?;
        let history = cached.history_at(&head);
        if history.is_some() {
            self.0.counters.revalidated();
        }
        Ok(history)
    }
}

#[async_trait]
impl<S: HistoryStore> HistoryStore for CachingStore<S> {
    fn handle(&self) -> &StoreHandle {
        self.0.inner.handle()
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let now = self.now();
        let cached = self.0.conversations.get(key);
        let fresh = cached.filter(|cached| self.is_fresh(cached.read, now));
        if let Some(head) = fresh.and_then(|cached| cached.head()) {
            self.0.counters.hit();
            return Ok(head);
        }
        self.0.counters.miss();
        self.read_head(key, now).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let now = self.now();
        if let Some(history) = self.kept(key, now).await? {
            return Ok(history);
        }
        self.0.counters.miss();
        let began = self.now();
        let is_fresh = |read| self.is_fresh(read, now);
        let flight = self.0.conversations.load(key, began, is_fresh, |reading| {
            let (inner, key) = (self.0.inner.clone(), key.clone());
            let load = async move {
                let history = inner.load(&key).await?;
                reading.saw_history(&history);
                Ok(history)
            };
            load.boxed()
        });
        let history = flight.load.await?;
        if self.is_fresh(flight.read, now) {
            return Ok(history);
        }
        // The load had begun before this one, and may have missed what another process wrote.
        let head = self.0.inner.head(key).await?;
        match is_same_history(&history.head, &head) {
            true => Ok(with_head(&history, &head)),
            false => self.0.inner.load(key).await,
        }
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.0.inner.open_run(key).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(ConversationKey, OpenRun)>, StoreError> {
        self.0.inner.open_runs(scope, after, limit).await
    }

    // As it is, since a future around it would be one more allocation in every service call.
    fn reserve<'a, 'f>(&'a self) -> BoxFuture<'f, Result<Slot, StoreError>>
    where
        'a: 'f,
        Self: 'f,
    {
        S::reserve(&self.0.inner)
    }

    fn try_reserve(&self) -> Option<Slot> {
        self.0.inner.try_reserve()
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let expected = writes.last().map(Write::result);
        let mut submission = self.0.conversations.submit(&writes);
        let mut ticket = self.0.inner.append(slot, writes);
        let is_stored = move |outcome: &Result<Revision, AppendError>| match outcome {
            Ok(revision) => expected == Some(*revision),
            Err(_) => false,
        };
        // A store that does the writes at once needs nobody to wait for them.
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

    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        let _changing = self.0.conversations.change(to);
        self.0.inner.fork(from, to).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let _changing = self.0.conversations.change(key);
        self.0.inner.delete(key).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        let _changing = self.0.conversations.change(key);
        self.0.inner.prune(key, keep).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.0.inner.list(scope, after, limit).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.0.inner.invocations(query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.0.inner.tool_totals(query).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.0.inner.flush().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.inner.close().await
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
