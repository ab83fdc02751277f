//! The store.

use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::FutureExt;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ConversationPage, ConversationQuery, ConversationRows, ConversationSummary, Description,
        Head, History, HistoryStore, InvocationQuery, Invocations, Keep, MessagePage, Pruned,
        Revision, Rewrite, RunSummary, StoreError, StoreWrapper, ToolTotals, UsageQuery,
        UsageTotals,
        author::{AppendError, OpenRunContent, Slot, Ticket, Write},
    },
};

use super::{
    gathered::{Admission, Gathered, Unsettled},
    writer,
};
use crate::sync::{Condvar, Mutex, MutexGuard, OnceLock};

/// Gathers writes in memory and stores them a little later, many at a time: for per-service-call
/// mode over a store that is slow to reach.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use tower_chat_cache::{CachingStore, WriteBehindStore};
/// use tower_chat_core::{MemoryStore, store::HistoryStore};
///
/// let slow = MemoryStore::new(); // such as a server far away
/// let store = CachingStore::new(WriteBehindStore::new(slow, Duration::from_millis(200)));
/// // ... runs ...
/// store.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # What may be lost
///
/// A gathered write is acknowledged before it is durable. A process that dies loses those of the
/// last `max_delay`, or of longer while the store inside cannot be reached; what is left of a
/// conversation is a beginning of it, and valid. Dropping the last clone has the rest written by a
/// thread that nobody waits for: call [`close`](HistoryStore::close) before the process ends.
///
/// A write is gathered only if it goes on from one that this store has stored or gathered itself.
/// If another process has written to the conversation meanwhile, the gathered writes conflict
/// when they are stored, and are lost: that is logged as an error, and told to whoever writes to
/// the conversation next, or flushes. One process at a time should write to a conversation.
///
/// # What is never gathered
///
/// Staged writes, which are the journal of a run, and writes that claim tool calls: they are durable
/// when they are acknowledged, and everything gathered of their conversation before them. Reading a
/// conversation, or questions to the record or the directory, have what was gathered stored first: with a cache around
/// few such questions come.
///
/// # Around and inside
///
/// A [`CachingStore`](crate::CachingStore) belongs around it. A store that encrypts does too, inside
/// of the cache: what is gathered is sealed then, and what was sealed under a key that is erased
/// meanwhile cannot be read.
///
/// # Failures
///
/// What the store inside fails to store, and may succeed with, is tried again until it does, after
/// `max_delay`, then twice that, up to half a minute. Each gathered submission keeps its slot in
/// the queue of the store inside, so that [`reserve`](HistoryStore::reserve) holds writers back when
/// there are too many.
pub struct WriteBehindStore<S: HistoryStore>(Arc<Owner<S>>);

/// What all clones share. When the last is dropped, the writer ends its work.
struct Owner<S: HistoryStore>(Arc<Shared<S>>);

pub(super) struct Shared<S> {
    pub(super) inner: S,
    pub(super) max_delay: Duration,
    gathered: Mutex<Gathered>,
    /// Something may be due.
    pub(super) due: Condvar,
    /// Whether there is a thread that stores what is gathered, once that was tried.
    writer: OnceLock<bool>,
}

impl<S: HistoryStore> WriteBehindStore<S> {
    /// A store that is at most `max_delay` behind, as long as the store inside takes writes.
    pub fn new(inner: S, max_delay: Duration) -> Self {
        let gathered = Mutex::new(Gathered::default());
        let writer = OnceLock::new();
        let shared = Shared { inner, max_delay, gathered, due: Condvar::new(), writer };
        Self(Arc::new(Owner(Arc::new(shared))))
    }

    /// The store inside. What is read from it directly may be behind, and what is written to it
    /// directly is what another process writes.
    pub fn inner(&self) -> &S {
        &self.shared().inner
    }

    /// How many writes were acknowledged and are not stored yet.
    pub fn unstored_writes(&self) -> usize {
        self.shared().gathered().unstored()
    }

    fn shared(&self) -> &Arc<Shared<S>> {
        &self.0.0
    }

    /// Waits until what was gathered of a conversation is stored.
    async fn settle(&self, key: &ConversationKey) -> Result<(), StoreError> {
        self.settle_some(|gathered| gathered.settle(key).into_iter().collect()).await
    }

    /// Waits until everything that was gathered is stored; tells the first failure.
    async fn settle_all(&self) -> Result<(), StoreError> {
        self.settle_some(Gathered::settle_all).await
    }

    async fn settle_some(
        &self,
        have_stored: impl FnOnce(&mut Gathered) -> Vec<Unsettled>,
    ) -> Result<(), StoreError> {
        let unsettled = have_stored(&mut self.shared().gathered());
        if unsettled.is_empty() {
            return Ok(());
        }
        self.shared().due.notify_one();
        let mut outcome = Ok(());
        for conversation in unsettled {
            outcome = outcome.and(settled(conversation).await);
        }
        if outcome.is_err() {
            // A store inside that encrypts cannot wait for a key when it writes, but when it reads.
            let failing = self.shared().gathered().failing();
            for key in failing {
                if self.inner().head(&key).await.is_err() {
                    break;
                }
            }
        }
        outcome
    }

    async fn settle_for(&self, query: &InvocationQuery) -> Result<(), StoreError> {
        match &query.conversation {
            Some(id) => self.settle(&ConversationKey::new(query.scope.as_str(), id.as_str())).await,
            None => self.settle_all().await,
        }
    }
}

async fn settled(unsettled: Unsettled) -> Result<(), StoreError> {
    match unsettled.await {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::Closed),
    }
}

impl<S> Shared<S> {
    pub(super) fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<S: HistoryStore> StoreWrapper for WriteBehindStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.shared().inner
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.settle(key).await?;
        let head = self.inner().head(key).await?;
        self.shared().gathered().saw(key, head.revision);
        Ok(head)
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.settle(key).await?;
        let history = self.inner().load(key).await?;
        self.shared().gathered().saw(key, history.head.revision);
        Ok(history)
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.settle(key).await?;
        self.inner().open_run(key).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        if let Some(slot) = self.inner().reserve().now_or_never() {
            return slot;
        }
        // Gathered submissions may hold all slots.
        self.shared().gathered().all_is_due();
        self.shared().due.notify_one();
        self.inner().reserve().await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let shared = self.shared();
        let has_writer = *shared.writer.get_or_init(|| writer::start(shared.clone()));
        let taken = shared.gathered().take(slot, writes, has_writer, shared.max_delay);
        match taken {
            Admission::Acknowledged { revision, is_new } => {
                if is_new {
                    shared.due.notify_one();
                }
                Ticket::done(Ok(revision))
            }
            Admission::InRow(ticket) => {
                shared.due.notify_one();
                ticket
            }
            Admission::Refused(error) => {
                Ticket::done(Err(AppendError { completed: 0, source: error }))
            }
            Admission::Direct { slot, writes, submission } => {
                let mut ticket = self.inner().append(slot, writes);
                let shared = shared.clone();
                let learn = move |outcome: &Result<Revision, AppendError>| {
                    if let Ok(revision) = outcome {
                        shared.gathered().stored(&submission, *revision);
                    }
                };
                if let Some(outcome) = (&mut ticket).now_or_never() {
                    learn(&outcome);
                    return Ticket::done(outcome);
                }
                Ticket::watching(async move {
                    let outcome = ticket.await;
                    learn(&outcome);
                    outcome
                })
            }
        }
    }

    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        self.settle(from).await?;
        self.settle(to).await?;
        self.inner().fork(from, to).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.settle(key).await?;
        let _changed = Changing::begin(self.shared(), key);
        self.inner().prune(key, keep).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.settle(key).await?;
        let _changed = Changing::begin(self.shared(), key);
        self.inner().delete(key).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.settle_all().await?;
        self.inner().list(scope, after, limit).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.settle_for(query).await?;
        self.inner().invocations(query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.settle_for(query).await?;
        self.inner().tool_totals(query).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.settle(key).await?;
        self.inner().summary(key).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        self.settle_all().await?;
        self.inner().conversations(query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        match (&query.scope, &query.conversation) {
            (Some(scope), Some(id)) => {
                self.settle(&ConversationKey::new(scope.clone(), id.clone())).await?;
            }
            _ => self.settle_all().await?,
        }
        self.inner().usage(query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.settle(key).await?;
        self.inner().runs(key, after, limit).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.settle(key).await?;
        self.inner().messages_before(key, before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        self.settle(key).await?;
        self.inner().set_description(key, description, expected_version).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.settle_all().await?;
        self.inner().scopes(after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.settle(key).await?;
        self.inner().rows(key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let key = rewrite.key.clone();
        self.settle(&key).await?;
        let _changed = Changing::begin(self.shared(), &key);
        self.inner().rewrite(rewrite).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.settle_all().await?;
        if let Some(lost) = self.shared().gathered().take_any_loss() {
            return Err(lost);
        }
        self.inner().flush().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shared().gathered().gather_no_more();
        HistoryStore::flush(self).await?;
        self.inner().close().await
    }
}

/// A conversation is being changed otherwise than by a write. What is known of it before is not so
/// afterwards, whether or not somebody waits for the end.
struct Changing<'a, S> {
    shared: &'a Shared<S>,
    key: &'a ConversationKey,
}

impl<'a, S> Changing<'a, S> {
    fn begin(shared: &'a Shared<S>, key: &'a ConversationKey) -> Self {
        shared.gathered().forget(key);
        Self { shared, key }
    }
}

impl<S> Drop for Changing<'_, S> {
    fn drop(&mut self) {
        self.shared.gathered().forget(self.key);
    }
}

impl<S: HistoryStore> Clone for WriteBehindStore<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: HistoryStore> Drop for Owner<S> {
    fn drop(&mut self) {
        self.0.gathered().end();
        self.0.due.notify_one();
    }
}

impl<S: HistoryStore> fmt::Debug for WriteBehindStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBehindStore")
            .field("max_delay", &self.shared().max_delay)
            .field("unstored_writes", &self.unstored_writes())
            .finish_non_exhaustive()
    }
}
