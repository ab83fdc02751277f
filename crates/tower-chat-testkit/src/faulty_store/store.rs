//! Implements `HistoryStore` and its capabilities for [`FaultyStore`].

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        AddedSummary, CallSelection, ConversationPage, ConversationQuery, ConversationRows,
        ConversationSummary, Description, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance, MessagePage,
        Pruned, Revision, Rewrite, RunSummary, StoreError, StoreHandle, Summaries, ToolCallQueries,
        ToolTotals, UsageQuery, UsageTotals,
        author::{AppendError, LoadFrom, OpenRunContent, Slot, Ticket, Write},
    },
};

use super::{FaultyStore, Held, Injection, Operation, StoreFault, operation::delayed};

impl<S: HistoryStore> FaultyStore<S> {
    fn inner_store(&self) -> &dyn HistoryStore {
        &self.inner
    }
}

#[async_trait]
impl<S: HistoryStore> HistoryStore for FaultyStore<S> {
    fn handle(&self) -> &StoreHandle {
        self.handle.as_ref().unwrap_or_else(|| self.inner.handle())
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.perform(Operation::Head, |held| held == key, self.inner.head(key)).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.perform(Operation::Load, |held| held == key, self.inner.load(key)).await
    }

    /// Returns only the selected messages, even if the inner store returns all messages.
    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let load = self.inner.load_from(key, from);
        let history = self.perform(Operation::Load, |held| held == key, load).await?;
        Ok(history.range(from))
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        let effect = self.inner.calls(key, which);
        self.perform(Operation::Invocations, |held| held == key, effect).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        let slot = self.perform(Operation::Reserve, |_| false, self.inner.reserve()).await?;
        let permit = match &self.permits {
            Some(permits) => permits.clone().acquire_owned().await.ok(),
            None => None,
        };
        Ok(with_permit(permit, slot))
    }

    fn try_reserve(&self) -> Option<Slot> {
        let mut state = self.state();
        if self.injector.is_some() || !state.script.is_empty(Operation::Reserve) {
            return None;
        }
        let permit = match &self.permits {
            Some(permits) => Some(permits.clone().try_acquire_owned().ok()?),
            None => None,
        };
        let slot = self.inner.try_reserve()?;
        state.script.count(Operation::Reserve);
        Some(with_permit(permit, slot))
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        if let Some(injector) = &self.injector {
            injector.submitted(&writes);
        }
        let Injection { yields_before, yields_after, fault } = self.injected(Operation::Append);
        let is_dead = matches!(fault, Some(StoreFault::Never)) || self.is_dead();
        let mut state = self.state();
        state.script.count(Operation::Append);
        state.script.writes.extend(writes.iter().cloned());
        let is_late = state.is_holding || !state.held.is_empty() || yields_before > 0 || is_dead;
        if !is_late {
            return delayed(self.submit(&mut state.script, slot, writes, fault), yields_after);
        }
        let number = self.shared.unreleased.borrow().released + state.held.len();
        let keys: Vec<_> = writes.iter().map(|write| write.key().clone()).collect();
        let (ticket, receiver) = oneshot::channel::<Ticket>();
        state.held.push_back(Held { slot, writes, fault, ticket });
        self.shared.unreleased.send_modify(|unreleased| unreleased.keys.extend(keys));
        // Without a runtime, no task can pass the submission to the inner store. The submission is
        // lost. This happens only at the end of the simulated process.
        if self.injector.is_some()
            && !is_dead
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(self.clone().release_in_turn(number, yields_before));
        }
        let released = Ticket::watching(async move {
            match receiver.await {
                Ok(ticket) => ticket.await,
                Err(_) => Err(AppendError { completed: 0, source: StoreError::Closed }),
            }
        });
        delayed(released, yields_after)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.perform(Operation::Delete, |held| held == key, self.inner.delete(key)).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.perform(Operation::Flush, |_| true, self.inner.flush()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.perform(Operation::Close, |_| true, self.inner.close()).await
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner.journal()?;
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner.directory()?;
        Some(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner.tool_calls()?;
        Some(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.inner.maintenance()?;
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        self.inner.summaries()?;
        Some(self)
    }
}

#[async_trait]
impl<S: HistoryStore> Summaries for FaultyStore<S> {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        let effect = self.inner_store().history_summaries(key);
        self.perform(Operation::HistorySummaries, |held| held == key, effect).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        let effect = self.inner_store().history_summary(key, id);
        self.perform(Operation::HistorySummary, |held| held == key, effect).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let effect = self.inner_store().add_summary(key, summary, rewrites);
        self.perform(Operation::AddSummary, |held| held == key, effect).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let effect = self.inner_store().remove_summary(key, id);
        self.perform(Operation::RemoveSummary, |held| held == key, effect).await
    }
}

#[async_trait]
impl<S: HistoryStore> Journal for FaultyStore<S> {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.perform(Operation::OpenRun, |held| held == key, self.inner_store().open_run(key)).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let effect = self.inner_store().open_runs(scope, after, limit);
        self.perform(Operation::OpenRuns, |held| held.scope() == scope, effect).await
    }
}

#[async_trait]
impl<S: HistoryStore> Maintenance for FaultyStore<S> {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let concerns = |held: &ConversationKey| held == from || held == to;
        let effect = self.inner_store().fork_at(from, before, to);
        self.perform(Operation::Fork, concerns, effect).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        if let Some(handle) = &self.handle {
            handle.at_rest(key)?;
        }
        self.perform(Operation::Prune, |held| held == key, self.inner_store().prune(key, keep))
            .await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.perform(Operation::Scopes, |_| true, self.inner_store().scopes(after, limit)).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.perform(Operation::Rows, |held| held == key, self.inner_store().rows(key)).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let key = rewrite.key.clone();
        let effect = self.inner_store().rewrite(rewrite);
        self.perform(Operation::Rewrite, |held| held == &key, effect).await
    }
}

#[async_trait]
impl<S: HistoryStore> Directory for FaultyStore<S> {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let effect = self.inner_store().list(scope, after, limit);
        self.perform(Operation::List, |held| held.scope() == scope, effect).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.perform(Operation::Summary, |held| held == key, self.inner_store().summary(key)).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let effect = self.inner_store().conversations(query);
        self.perform(Operation::Conversations, |held| query.concerns(held), effect).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        let effect = self.inner_store().usage(query);
        self.perform(Operation::Usage, |held| query.concerns(held), effect).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let effect = self.inner_store().runs(key, after, limit);
        self.perform(Operation::Runs, |held| held == key, effect).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let effect = self.inner_store().messages_before(key, before, limit);
        self.perform(Operation::MessagesBefore, |held| held == key, effect).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let effect = self.inner_store().set_description(key, description, expected_version);
        self.perform(Operation::SetDescription, |held| held == key, effect).await
    }
}

#[async_trait]
impl<S: HistoryStore> ToolCallQueries for FaultyStore<S> {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        let effect = self.inner_store().invocations(query);
        self.perform(Operation::Invocations, |held| may_concern(query, held), effect).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        let effect = self.inner_store().tool_totals(query);
        self.perform(Operation::ToolTotals, |held| may_concern(query, held), effect).await
    }
}

/// Returns a slot (a reserved entry of the queue) with a permit of this store.
fn with_permit(permit: Option<OwnedSemaphorePermit>, slot: Slot) -> Slot {
    match permit {
        Some(permit) => Slot::guarded((permit, slot)),
        None => slot,
    }
}

/// Returns whether the result of a query may contain calls of a conversation.
fn may_concern(query: &InvocationQuery, key: &ConversationKey) -> bool {
    query.scope == key.scope() && query.conversation.as_ref().is_none_or(|id| id == key.id())
}
