//! The write-behind store.

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

/// Gathers writes in memory and stores them a little later, many at a time. Use it for
/// per-service-call mode with a slow store.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use tower_chat_cache::{CachingStore, WriteBehindStore};
/// use tower_chat_core::{MemoryStore, store::HistoryStore};
///
/// let slow = MemoryStore::new(); // such as a remote server
/// let store = CachingStore::new(WriteBehindStore::new(slow, Duration::from_millis(200)));
/// // ... runs ...
/// store.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # Lost writes
///
/// A gathered write is acknowledged before it is durable. If the process dies, the writes of the
/// last `max_delay` are lost, or more if the inner store was unreachable. The remaining messages of
/// a conversation are a valid beginning of it. When the last clone is dropped, a thread stores the
/// rest, and no caller waits for the thread: call [`close`](HistoryStore::close) before the process
/// ends.
///
/// A write is gathered only if it continues from a write that this store has stored or gathered. If
/// another process has written to the conversation meanwhile, the gathered writes conflict when
/// they are stored, and are lost. The loss is logged as an error, and returned to the next caller
/// that writes to the conversation or flushes the store. Therefore, only one process at a time
/// should write to a conversation.
///
/// # Writes that are never gathered
///
/// Staged writes, which are the journal of a run, and writes that claim tool calls are durable when
/// they are acknowledged, and so are the gathered writes of their conversation before them. Reads
/// of a conversation, and queries of the record or the directory, first store the gathered writes.
/// A cache around this store avoids most reads.
///
/// # In a stack of stores
///
/// Put a [`CachingStore`](crate::CachingStore) around this store. Put an encrypting store around it
/// too, inside of the cache: the gathered writes are then sealed. If a key is erased before they
/// are stored, they cannot be read.
///
/// # Failures
///
/// A write that fails with a retryable error is repeated, after `max_delay`, then twice that, up to
/// half a minute, until it succeeds. Each gathered submission owns its slot in the queue of the
/// inner store, so that [`reserve`](HistoryStore::reserve) delays writers if there are too many.
pub struct WriteBehindStore<S: HistoryStore>(Arc<Owner<S>>);

/// The state that all clones share. Dropping the last clone ends the writer.
struct Owner<S: HistoryStore>(Arc<Shared<S>>);

pub(super) struct Shared<S> {
    pub(super) inner: S,
    pub(super) max_delay: Duration,
    gathered: Mutex<Gathered>,
    /// Wakes the writer thread, because a write may be due.
    pub(super) due: Condvar,
    /// Whether the writer thread could be started; empty before the first attempt.
    writer: OnceLock<bool>,
}

impl<S: HistoryStore> WriteBehindStore<S> {
    /// Creates a store that is at most `max_delay` behind, as long as the inner store accepts
    /// writes.
    pub fn new(inner: S, max_delay: Duration) -> Self {
        let gathered = Mutex::new(Gathered::default());
        let writer = OnceLock::new();
        let shared = Shared { inner, max_delay, gathered, due: Condvar::new(), writer };
        Self(Arc::new(Owner(Arc::new(shared))))
    }

    /// Returns the inner store. Direct reads may miss gathered writes, and direct writes count as
    /// those of another process.
    pub fn inner(&self) -> &S {
        &self.shared().inner
    }

    /// Returns the number of writes that are acknowledged and not stored.
    pub fn unstored_writes(&self) -> usize {
        self.shared().gathered().unstored()
    }

    fn shared(&self) -> &Arc<Shared<S>> {
        &self.0.0
    }

    /// Waits until the gathered writes of a conversation are stored.
    async fn settle(&self, key: &ConversationKey) -> Result<(), StoreError> {
        self.settle_some(|gathered| gathered.settle(key).into_iter().collect()).await
    }

    /// Waits until all gathered writes are stored. Returns the first failure.
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
            // An encrypting inner store cannot await a key during a write, but it can during a
            // read.
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
        // Gathered submissions may own all slots.
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

/// The guard of a change of a conversation other than a write. When it is dropped, the known
/// revision is forgotten, whether or not the change was awaited to its end.
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
