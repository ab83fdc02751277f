//! The store.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::FutureExt;
use tower_chat_core::{
    ConversationKey,
    store::{
        AppendError, Head, History, HistoryStore, InvocationQuery, Invocations, Keep, OpenRun,
        OpenRunContent, Pruned, Revision, Slot, StoreError, StoreHandle, Ticket, ToolTotals,
        UnreadableInvocation, Write,
    },
};

use crate::{
    EncryptionError, KeyError, KeyProvider,
    error::reported,
    fork,
    seal::{Found, Opener, Sealer},
};

/// Encrypts what another store keeps; see [the crate](crate).
///
/// It is the store it is put around: their [`handle`](HistoryStore::handle) is the same. What cannot
/// be sealed or opened is a [`StoreError::Backend`] whose source is an [`EncryptionError`].
#[derive(Clone)]
pub struct EncryptedStore<S> {
    inner: S,
    keys: Arc<dyn KeyProvider>,
}

impl<S: HistoryStore> EncryptedStore<S> {
    /// Encrypts what a store keeps, with these keys. The store must be empty, or have been written
    /// through this: what is in clear is refused.
    pub fn new(inner: S, keys: impl KeyProvider) -> Self {
        Self { inner, keys: Arc::new(keys) }
    }

    /// The store inside, which sees what is sealed.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn opener<'a>(&'a self, key: &'a ConversationKey) -> Opener<'a> {
        Opener::new(key, &*self.keys)
    }

    async fn opened_head(
        &self,
        key: &ConversationKey,
        mut head: Head,
    ) -> Result<Head, EncryptionError> {
        let mut opener = self.opener(key);
        if let Some(open) = head.open_run.take() {
            head.open_run = Some(opener.open_run(open).await?);
        }
        for request in head.pending_approvals.iter_mut().flatten() {
            *request = opener.approval_request(Found::somewhere(), request).await?;
        }
        Ok(head)
    }

    async fn opened_history(
        &self,
        key: &ConversationKey,
        sealed: History,
    ) -> Result<History, EncryptionError> {
        let messages =
            self.opener(key).messages(sealed.head.pruned, sealed.messages.iter()).await?;
        let mut history = History::empty();
        history.extend(messages);
        history.head = self.opened_head(key, sealed.head).await?;
        Ok(history)
    }

    async fn opened_run(
        &self,
        key: &ConversationKey,
        sealed: OpenRunContent,
    ) -> Result<OpenRunContent, EncryptionError> {
        let head = self.opened_head(key, sealed.head).await?;
        let mut opener = self.opener(key);
        let open = opener.open_run(sealed.open).await?;
        let messages = opener.messages(open.visible, sealed.messages.iter()).await?;
        let mut tools = Vec::with_capacity(sealed.tools.len());
        for row in sealed.tools {
            tools.push(opener.row(row).await?);
        }
        Ok(OpenRunContent::new(head, open, messages, tools))
    }

    /// Seals writes up to the first that cannot be sealed. Nothing can be awaited here.
    fn sealed(&self, writes: &[Write]) -> (Vec<Write>, Option<EncryptionError>) {
        let mut sealed = Vec::with_capacity(writes.len());
        let mut last: Option<Sealer> = None;
        for write in writes {
            let sealer = match last.take().filter(|sealer| sealer.conversation == *write.key()) {
                Some(sealer) => Ok(sealer),
                None => self.sealer(write.key()),
            };
            let outcome = sealer.and_then(|sealer| Ok((sealer.write(write)?, sealer)));
            match outcome {
                Ok((write, sealer)) => {
                    sealed.push(write);
                    last = Some(sealer);
                }
                Err(error) => return (sealed, Some(error)),
            }
        }
        (sealed, None)
    }

    fn sealer(&self, key: &ConversationKey) -> Result<Sealer, EncryptionError> {
        let ready = self.keys.writing_key(key).now_or_never();
        let (id, secret) =
            ready.ok_or_else(|| EncryptionError::KeyNotAtHand { key: key.clone() })??;
        Ok(Sealer { conversation: key.clone(), id, key: secret })
    }
}

const SEAL: &str = "seal a write";
const OPEN: &str = "open a conversation";

#[async_trait]
impl<S: HistoryStore> HistoryStore for EncryptedStore<S> {
    fn handle(&self) -> &StoreHandle {
        self.inner.handle()
    }

    /// Also has the key for the next write fetched, so that a run that cannot be stored fails
    /// before its model is paid.
    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let fetched: Result<_, KeyError> = self.keys.writing_key(key).await;
        fetched.map_err(EncryptionError::from).map_err(reported(SEAL))?;
        let head = self.inner.head(key).await?;
        self.opened_head(key, head).await.map_err(reported(OPEN))
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let sealed = self.inner.load(key).await?;
        self.opened_history(key, sealed).await.map_err(reported(OPEN))
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        match self.inner.open_run(key).await? {
            Some(sealed) => {
                let opened = self.opened_run(key, sealed).await;
                opened.map(Some).map_err(reported("open an open run"))
            }
            None => Ok(None),
        }
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(ConversationKey, OpenRun)>, StoreError> {
        let mut runs = self.inner.open_runs(scope, after, limit).await?;
        for (key, open) in &mut runs {
            let opened = self.opener(key).open_run(open.clone()).await;
            *open = opened.map_err(reported("open the list of open runs"))?;
        }
        Ok(runs)
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.inner.reserve().await
    }

    fn try_reserve(&self) -> Option<Slot> {
        self.inner.try_reserve()
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let (sealed, error) = self.sealed(&writes);
        let Some(error) = error else { return self.inner.append(slot, sealed) };
        let completed = sealed.len();
        let failed = AppendError { completed, source: reported(SEAL)(error) };
        if sealed.is_empty() {
            return Ticket::done(Err(failed));
        }
        let ticket = self.inner.append(slot, sealed);
        Ticket::watching(async move { ticket.await.and(Err(failed)) })
    }

    /// Reads, opens, seals and writes all of it again: the copy is one submission, and its writes
    /// are not one transaction.
    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        let slot = self.inner.reserve().await?;
        let exists = || StoreError::Exists { key: to.clone() };
        if self.inner.head(to).await?.revision != Revision::ABSENT {
            return Err(exists());
        }
        let history = self.load(from).await?;
        if history.messages.is_empty() && history.head.service_id.is_none() {
            return Ok(Revision::ABSENT);
        }
        let recorded = self.invocations(&InvocationQuery::of(from)).await?.found;
        let recorded = recorded.into_iter().map(|(_, invocation)| invocation).collect();
        let copied = self.append(slot, fork::writes(to, &history, recorded)).await;
        copied.map_err(|error| match (error.completed, error.source) {
            (0, StoreError::Conflict(_)) => exists(),
            (_, source) => source,
        })
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.inner.delete(key).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.inner.prune(key, keep).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.inner.list(scope, after, limit).await
    }

    /// Rows that do not open are reported among the unreadable.
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        let mut invocations = self.inner.invocations(query).await?;
        for (key, sealed) in std::mem::take(&mut invocations.found) {
            let (sequence, index) = (sealed.sequence, sealed.sequence_index);
            match self.opener(&key).invocation(sealed).await {
                Ok(opened) => invocations.found.push((key, opened)),
                Err(error) => invocations.unreadable.push(UnreadableInvocation::new(
                    key,
                    sequence,
                    index,
                    error.to_string(),
                )),
            }
        }
        Ok(invocations)
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.inner.tool_totals(query).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

impl<S: fmt::Debug> fmt::Debug for EncryptedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptedStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
