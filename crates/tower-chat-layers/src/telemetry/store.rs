//! A store whose operations have spans.

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey,
    store::{
        Head, History, HistoryStore, InvocationQuery, Invocations, Keep, OpenRun, Pruned, Revision,
        StoreError, StoreWrapper, ToolTotals,
        author::{Close, OpenRunContent, Slot, Ticket, Write},
    },
};
use tracing::{Instrument, Span};

use super::{
    open_span::OpenSpan,
    spans::{self, Count, record_count, record_store_error},
};

/// A store around another one: each operation is a span, which has how many messages were read or
/// written, and whether it failed.
///
/// The span of an `append` ends when its ticket says that the writes are durable, and as `dropped` if
/// the ticket is dropped before: the store writes all the same. The span of a `reserve` is the wait for
/// a slot in the store's queue; a slot that is free at once has none.
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

    /// What the store is, `db.system.name`: `sqlite`, `postgresql`, `redis`.
    #[must_use]
    pub fn with_system(mut self, name: &'static str) -> Self {
        self.system = Some(name);
        self
    }

    fn span(&self, operation: &'static str, key: Option<&ConversationKey>) -> Span {
        spans::store(operation, self.system, key)
    }
}

/// Runs an operation inside its span.
async fn traced<T>(
    span: Span,
    operation: impl Future<Output = Result<T, StoreError>>,
    messages: impl FnOnce(&T) -> Option<usize>,
) -> Result<T, StoreError> {
    let mut open = OpenSpan::new(span.clone());
    let result = operation.instrument(span).await;
    match &result {
        Ok(value) => {
            if let Some(count) = messages(value) {
                record_count(open.span(), Count::Messages, count);
            }
            open.completed();
        }
        Err(error) => {
            record_store_error(open.span(), error);
            open.ended_in_error();
        }
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
        traced(self.span("head", Some(key)), self.inner.head(key), |_| None).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let count = |history: &History| Some(history.messages.len());
        traced(self.span("load", Some(key)), self.inner.load(key), count).await
    }

    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        traced(self.span("open_run", Some(key)), self.inner.open_run(key), |_| None).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        traced(self.span("reserve", None), self.inner.reserve(), |_| None).await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let span = self.span("append", writes.first().map(|write| write.key()));
        if span.is_disabled() {
            return self.inner.append(slot, writes);
        }
        let messages = writes.iter().map(|write| write.messages().len()).sum();
        record_count(&span, Count::Messages, messages);
        record_count(&span, Count::Writes, writes.len());
        let staged = writes.iter().filter(|write| write.as_staged().is_some()).count();
        record_count(&span, Count::Staged, staged);
        let commits = writes.iter().filter(|write| write.close() == Some(Close::Commit)).count();
        record_count(&span, Count::Commits, commits);
        let mut open = OpenSpan::new(span.clone());
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
                    Err(error) => {
                        record_store_error(open.span(), &error.source);
                        open.ended_in_error();
                    }
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
        traced(self.span("fork", Some(from)), self.inner.fork(from, to), |_| None).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        traced(self.span("prune", Some(key)), self.inner.prune(key, keep), |_| None).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(ConversationKey, OpenRun)>, StoreError> {
        let operation = self.inner.open_runs(scope, after, limit);
        traced(self.span("open_runs", None), operation, |_| None).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        traced(self.span("list", None), self.inner.list(scope, after, limit), |_| None).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        traced(self.span("tool_totals", None), self.inner.tool_totals(query), |_| None).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        traced(self.span("flush", None), self.inner.flush(), |()| None).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        traced(self.span("close", None), self.inner.close(), |()| None).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        traced(self.span("delete", Some(key)), self.inner.delete(key), |_| None).await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        traced(self.span("invocations", None), self.inner.invocations(query), |_| None).await
    }
}
