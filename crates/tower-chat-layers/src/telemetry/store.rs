//! A store whose operations have spans.

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ConversationPage, ConversationQuery, ConversationRows, ConversationSummary, Description,
        Head, History, HistoryStore, InvocationQuery, Invocations, Keep, MessagePage, Pruned,
        Revision, Rewrite, RunSummary, StoreError, StoreWrapper, ToolTotals, UsageQuery,
        UsageTotals,
        author::{Close, OpenRunContent, Slot, Ticket, Write},
    },
};
use tracing::Instrument;

use super::{
    measured::Measured,
    open_span::OpenSpan,
    spans::{self, Count, record_count, store_error_type},
};

/// A store around another one: each operation is a span, which has how many messages were read or
/// written, and whether it failed.
///
/// The span of an `append` ends when its ticket says that the writes are durable, and as `dropped` if
/// the ticket is dropped before: the store writes all the same. The span of a `reserve` is the wait for
/// a slot in the store's queue.
#[derive(Debug, Clone)]
pub struct TracedStore<S> {
    inner: S,
    system: Option<&'static str>,
}

impl<S> TracedStore<S> {
    /// Around a store.
    pub fn new(inner: S) -> Self {
        Self { inner, system: None }
    }

    /// What the store is, `db.system.name`, instead of what its
    /// [handle](tower_chat_core::store::StoreHandle::system) says.
    #[must_use]
    pub fn with_system(mut self, name: &'static str) -> Self {
        self.system = Some(name);
        self
    }

    fn open(&self, operation: &'static str, key: Option<&ConversationKey>) -> OpenSpan
    where
        S: HistoryStore,
    {
        let system = self.system.or_else(|| self.inner.handle().system());
        let span = spans::store(operation, system, key);
        OpenSpan::new(span, Measured::store(operation, system))
    }
}

/// Runs an operation inside its span.
async fn traced<T>(
    mut open: OpenSpan,
    operation: impl Future<Output = Result<T, StoreError>>,
    messages: impl FnOnce(&T) -> Option<usize>,
) -> Result<T, StoreError> {
    let result = operation.instrument(open.span().clone()).await;
    match &result {
        Ok(value) => {
            if let Some(count) = messages(value) {
                record_count(open.span(), Count::Messages, count);
            }
            open.completed();
        }
        Err(error) => open.failed_by(store_error_type(error)),
    }
    result
}

#[async_trait]
impl<S: HistoryStore> StoreWrapper for TracedStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        traced(self.open("head", Some(key)), self.inner.head(key), |_| None).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let count = |history: &History| Some(history.messages.len());
        traced(self.open("load", Some(key)), self.inner.load(key), count).await
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        traced(self.open("open_run", Some(key)), self.inner.open_run(key), |_| None).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        traced(self.open("reserve", None), self.inner.reserve(), |_| None).await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let mut open = self.open("append", writes.first().map(|write| write.key()));
        if !open.is_recorded() {
            return self.inner.append(slot, writes);
        }
        let span = open.span().clone();
        let messages = writes.iter().map(|write| write.messages().len()).sum();
        record_count(&span, Count::Messages, messages);
        record_count(&span, Count::Writes, writes.len());
        let staged = writes.iter().filter(|write| write.as_staged().is_some()).count();
        record_count(&span, Count::Staged, staged);
        let commits = writes.iter().filter(|write| write.close() == Some(Close::Commit)).count();
        record_count(&span, Count::Commits, commits);
        let ticket = span.in_scope(|| self.inner.append(slot, writes));
        if ticket.is_durable() {
            open.completed();
            return ticket;
        }
        Ticket::watching(
            async move {
                let outcome = ticket.await;
                match &outcome {
                    Ok(_) => open.completed(),
                    Err(error) => open.failed_by(store_error_type(&error.source)),
                }
                outcome
            }
            .instrument(span),
        )
    }

    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        traced(self.open("fork", Some(from)), self.inner.fork(from, to), |_| None).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        traced(self.open("prune", Some(key)), self.inner.prune(key, keep), |_| None).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let operation = self.inner.open_runs(scope, after, limit);
        traced(self.open("open_runs", None), operation, |_| None).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        traced(self.open("list", None), self.inner.list(scope, after, limit), |_| None).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        traced(self.open("tool_totals", None), self.inner.tool_totals(query), |_| None).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        traced(self.open("summary", Some(key)), self.inner.summary(key), |_| None).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let operation = self.inner.conversations(query);
        traced(self.open("conversations", None), operation, |_| None).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        traced(self.open("usage", None), self.inner.usage(query), |_| None).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let operation = self.inner.runs(key, after, limit);
        traced(self.open("runs", Some(key)), operation, |_| None).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let operation = self.inner.messages_before(key, before, limit);
        let count = |page: &MessagePage| Some(page.messages.len());
        traced(self.open("messages_before", Some(key)), operation, count).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let operation = self.inner.set_description(key, description, expected_version);
        traced(self.open("set_description", Some(key)), operation, |_| None).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        traced(self.open("scopes", None), self.inner.scopes(after, limit), |_| None).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        let count = |rows: &Option<ConversationRows>| rows.as_ref().map(|it| it.messages.len());
        traced(self.open("rows", Some(key)), self.inner.rows(key), count).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let open = self.open("rewrite", Some(&rewrite.key));
        record_count(open.span(), Count::Messages, rewrite.messages.len());
        traced(open, self.inner.rewrite(rewrite), |_| None).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        traced(self.open("flush", None), self.inner.flush(), |()| None).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        traced(self.open("close", None), self.inner.close(), |()| None).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        traced(self.open("delete", Some(key)), self.inner.delete(key), |_| None).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        traced(self.open("invocations", None), self.inner.invocations(query), |_| None).await
    }
}
