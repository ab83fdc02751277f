//! Wraps a store with a span for each operation.

use std::time::Instant;

use async_trait::async_trait;
use tracing::{Instrument, Span, field::Empty, info_span};

use super::{
    Outcome, is_recorded,
    metric::{ERRORS, STORE_OPERATION_DURATION, label},
};
use crate::{
    ConversationKey, RunId,
    store::{
        AddedSummary, CallSelection, ConversationPage, ConversationQuery, ConversationRows,
        ConversationSummary, Description, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance, MessagePage,
        Pruned, Revision, Rewrite, RunSummary, StoreError, Summaries, ToolCallQueries, ToolTotals,
        UsageQuery, UsageTotals,
        author::{Close, LoadFrom, OpenRunContent, Slot, StoreWrapper, Ticket, Write},
    },
};

/// A store that wraps another store and creates a span for each operation. The span contains the
/// number of messages that were read or written, and the outcome.
///
/// The span of an `append` ends when its [ticket](crate::store::author::Ticket), the future with
/// the outcome, has completed. If the ticket is dropped earlier, the outcome in the span is
/// `dropped`, although the store still executes the writes. The span of a `reserve` contains the
/// time of the wait for an entry (slot) in the queue of the store.
#[derive(Debug, Clone)]
pub struct TracedStore<S> {
    inner: S,
    system: Option<&'static str>,
}

impl<S> TracedStore<S> {
    /// Wraps a store.
    pub fn new(inner: S) -> Self {
        Self { inner, system: None }
    }

    /// Sets `db.system.name`, the kind of the store. The default is the kind in the
    /// [handle](crate::store::StoreHandle::system) of the store.
    #[must_use]
    pub fn with_system(mut self, name: &'static str) -> Self {
        self.system = Some(name);
        self
    }

    fn inner_store(&self) -> &dyn HistoryStore
    where
        S: HistoryStore,
    {
        &self.inner
    }

    fn open(&self, operation: &'static str, key: Option<&ConversationKey>) -> Operation
    where
        S: HistoryStore,
    {
        let system = self.system.or_else(|| self.inner.handle().system());
        Operation::begin(operation, system, key)
    }
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

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let count = |history: &History| Some(history.messages.len());
        traced(self.open("load", Some(key)), self.inner.load_from(key, from), count).await
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        traced(self.open("calls", Some(key)), self.inner.calls(key, which), |_| None).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        traced(self.open("reserve", None), self.inner.reserve(), |_| None).await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let mut open = self.open("append", writes.first().map(|write| write.key()));
        if !open.is_recorded() {
            return self.inner.append(slot, writes);
        }
        let span = open.span.clone();
        open.record("tower_chat.messages", writes.iter().map(|write| write.messages().len()).sum());
        open.record("tower_chat.writes", writes.len());
        let staged = writes.iter().filter(|write| write.as_staged().is_some()).count();
        open.record("tower_chat.staged", staged);
        let commits = writes.iter().filter(|write| write.close() == Some(Close::Commit)).count();
        open.record("tower_chat.commits", commits);
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
                    Err(error) => open.failed(&error.source),
                }
                outcome
            }
            .instrument(span),
        )
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

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner().journal()?;
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner().directory()?;
        Some(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner().tool_calls()?;
        Some(self)
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
impl<S: HistoryStore> Summaries for TracedStore<S> {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        let operation = self.inner_store().history_summaries(key);
        traced(self.open("history_summaries", Some(key)), operation, |_| None).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        let operation = self.inner_store().history_summary(key, id);
        traced(self.open("history_summary", Some(key)), operation, |_| None).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let operation = self.inner_store().add_summary(key, summary, rewrites);
        traced(self.open("add_summary", Some(key)), operation, |_| None).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let operation = self.inner_store().remove_summary(key, id);
        traced(self.open("remove_summary", Some(key)), operation, |_| None).await
    }
}

#[async_trait]
impl<S: HistoryStore> Journal for TracedStore<S> {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        traced(self.open("open_run", Some(key)), self.inner_store().open_run(key), |_| None).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let operation = self.inner_store().open_runs(scope, after, limit);
        traced(self.open("open_runs", None), operation, |_| None).await
    }
}

#[async_trait]
impl<S: HistoryStore> Maintenance for TracedStore<S> {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let open = self.open("fork", Some(from));
        traced(open, self.inner_store().fork_at(from, before, to), |_| None).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        traced(self.open("prune", Some(key)), self.inner_store().prune(key, keep), |_| None).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        traced(self.open("scopes", None), self.inner_store().scopes(after, limit), |_| None).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        let count = |rows: &Option<ConversationRows>| rows.as_ref().map(|it| it.messages.len());
        traced(self.open("rows", Some(key)), self.inner_store().rows(key), count).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let open = self.open("rewrite", Some(&rewrite.key));
        open.record("tower_chat.messages", rewrite.messages.len());
        traced(open, self.inner_store().rewrite(rewrite), |_| None).await
    }
}

#[async_trait]
impl<S: HistoryStore> Directory for TracedStore<S> {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        traced(self.open("list", None), self.inner_store().list(scope, after, limit), |_| None)
            .await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        traced(self.open("summary", Some(key)), self.inner_store().summary(key), |_| None).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let operation = self.inner_store().conversations(query);
        traced(self.open("conversations", None), operation, |_| None).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        traced(self.open("usage", None), self.inner_store().usage(query), |_| None).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let operation = self.inner_store().runs(key, after, limit);
        traced(self.open("runs", Some(key)), operation, |_| None).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let operation = self.inner_store().messages_before(key, before, limit);
        let count = |page: &MessagePage| Some(page.messages.len());
        traced(self.open("messages_before", Some(key)), operation, count).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let operation = self.inner_store().set_description(key, description, expected_version);
        traced(self.open("set_description", Some(key)), operation, |_| None).await
    }
}

#[async_trait]
impl<S: HistoryStore> ToolCallQueries for TracedStore<S> {
    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        traced(self.open("tool_totals", None), self.inner_store().tool_totals(query), |_| None)
            .await
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        traced(self.open("invocations", None), self.inner_store().invocations(query), |_| None)
            .await
    }
}

async fn traced<T>(
    mut open: Operation,
    operation: impl Future<Output = Result<T, StoreError>>,
    messages: impl FnOnce(&T) -> Option<usize>,
) -> Result<T, StoreError> {
    let result = operation.instrument(open.span.clone()).await;
    match &result {
        Ok(value) => {
            if let Some(count) = messages(value) {
                open.record("tower_chat.messages", count);
            }
            open.completed();
        }
        Err(error) => open.failed(error),
    }
    result
}

/// An operation in progress, with its span and its measurements. Dropping the value before the end
/// of the operation records the outcome `dropped`.
struct Operation {
    span: Span,
    name: &'static str,
    system: Option<&'static str>,
    /// The start of the operation, if a recorder is installed.
    since: Option<Instant>,
    is_ended: bool,
}

impl Operation {
    fn begin(
        name: &'static str,
        system: Option<&'static str>,
        key: Option<&ConversationKey>,
    ) -> Self {
        let span = info_span!(
            "store",
            "otel.name" = name,
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            "db.system.name" = system,
            "db.operation.name" = name,
            "gen_ai.conversation.id" = key.map(|key| key.id()),
            "error.type" = Empty,
            "tower_chat.scope" = key.map(|key| key.scope()),
            "tower_chat.messages" = Empty,
            "tower_chat.writes" = Empty,
            "tower_chat.staged" = Empty,
            "tower_chat.commits" = Empty,
            "tower_chat.outcome" = Empty,
        );
        let since = is_recorded().then(Instant::now);
        Self { span, name, system, since, is_ended: false }
    }

    fn is_recorded(&self) -> bool {
        !self.span.is_disabled() || self.since.is_some()
    }

    fn record(&self, field: &'static str, count: usize) {
        self.span.record(field, count);
    }

    fn completed(&mut self) {
        self.end(Outcome::Completed, None);
    }

    fn failed(&mut self, error: &StoreError) {
        let error = store_error_type(error);
        self.span.record("error.type", error);
        self.span.record("otel.status_code", "ERROR");
        self.end(Outcome::Failed, Some(error));
    }

    fn end(&mut self, outcome: Outcome, error: Option<&'static str>) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        self.span.record("tower_chat.outcome", outcome.as_str());
        let Some(since) = self.since else { return };
        let operation = (label::STORE_OPERATION, Some(self.name));
        STORE_OPERATION_DURATION.record(
            since.elapsed().as_secs_f64(),
            &[
                operation,
                (label::SYSTEM, self.system),
                (label::OUTCOME, Some(outcome.as_str())),
                (label::ERROR, error),
            ],
        );
        if error.is_some() {
            ERRORS.add(1, &[operation, (label::ERROR, error)]);
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.end(Outcome::Dropped, None);
    }
}

/// Returns the type of an error for spans and metrics. The type of an error without a name is
/// `_OTHER`, as in OpenTelemetry's conventions for errors.
pub fn store_error_type(error: &StoreError) -> &'static str {
    match error {
        StoreError::Conflict(_) => "conflict",
        StoreError::Claimed { .. } => "claimed",
        StoreError::Exists { .. } => "exists",
        StoreError::UnderWay { .. } => "under_way",
        StoreError::Closed => "closed",
        StoreError::ReadOnly => "read_only",
        StoreError::StorageFull { .. } => "storage_full",
        StoreError::Corrupt { .. }
        | StoreError::Undecodable { .. }
        | StoreError::Unreadable { .. } => "corrupt",
        StoreError::Backend { retryable: true, .. } => "unavailable",
        StoreError::NoConversation { .. }
        | StoreError::DescriptionChanged { .. }
        | StoreError::DescriptionTooLarge(_)
        | StoreError::MissingCapability { .. }
        | StoreError::Sealed
        | StoreError::Backend { .. } => "_OTHER",
    }
}
