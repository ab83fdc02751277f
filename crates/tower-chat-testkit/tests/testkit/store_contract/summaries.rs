//! The summaries of the faulty stores.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        AddedSummary, HistoryStore, HistorySummary, Maintenance, Rewrite, StoreError, Summaries,
    },
};

use tower_chat_testkit::store_contract::{self, Store};

use super::{Broken, Fault};

#[async_trait]
impl Summaries for Broken {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        let mut found = self.inner.history_summaries(&self.key(key)).await?;
        match self.fault {
            Fault::ListsSummariesBackwards => found.reverse(),
            Fault::KeepsPrunedSummaries
                if self.inner.head(key).await?.pruned > 0 && !found.is_empty() =>
            {
                let last = MessageId { run: RunId::new(), index: 0 };
                found.insert(0, HistorySummary::new(1, last, "pruned"));
            }
            _ => {}
        }
        Ok(found)
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        match self.fault {
            Fault::FindsAnySummary => Ok(self.inner.history_summaries(&self.key(key)).await?.pop()),
            _ => self.inner.history_summary(&self.key(key), id).await,
        }
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        mut rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let key = &self.key(key);
        let mut summary = summary.clone();
        let head = self.inner.head(key).await?;
        match self.fault {
            Fault::ForgetsTheModelOfSummaries => summary.made_by = None,
            Fault::CoversAnyMessage => {
                let history = self.inner.load(key).await?;
                let message = history.message(summary.covers_to);
                summary.last = message.and_then(|it| it.id).unwrap_or(summary.last);
            }
            Fault::CoversStagedMessages
                if head.open_run.is_some_and(|open| open.visible < summary.covers_to) =>
            {
                return Ok(AddedSummary::Stored);
            }
            Fault::AddsSummariesAfterRewrites => rewrites = head.rewrites,
            Fault::AddsOlderSummaries => {
                while let Some(later) = self.inner.head(key).await?.summary
                    && later.covers_to > summary.covers_to
                {
                    self.inner.remove_summary(key, later.id).await?;
                }
            }
            Fault::AddsSummariesAgain => summary.id = RunId::new().random_half(),
            Fault::AddsSummariesInSteps => {
                if let Some(before) = self.inner.history_summaries(key).await?.pop() {
                    self.inner.remove_summary(key, before.id).await?;
                    tokio::task::yield_now().await;
                    self.inner.add_summary(key, &before, rewrites).await?;
                }
            }
            Fault::SummariesChangeTheRevision => {
                let rewrite = Rewrite::new(key.clone(), head.revision);
                drop(self.inner.rewrite(rewrite).await);
            }
            _ => {}
        }
        self.inner.add_summary(key, &summary, rewrites).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let key = &self.key(key);
        let in_force = self.inner.head(key).await?.summary;
        let id = match (self.fault, in_force) {
            (Fault::RemovesTheLastSummary, Some(in_force)) => in_force.id,
            _ => id,
        };
        self.inner.remove_summary(key, id).await
    }
}

/// After a rewrite, adds the summaries that the rewrite has correctly deleted.
pub(super) async fn rewritten(
    store: &Broken,
    key: &ConversationKey,
    before: Vec<HistorySummary>,
) -> Result<(), StoreError> {
    let rewrites = store.inner.head(key).await?.rewrites;
    for summary in before {
        store.inner.add_summary(key, &summary, rewrites).await?;
    }
    Ok(())
}

/// After a prune, removes the summary in force if it covers only pruned messages. A correct store
/// keeps this summary.
pub(super) async fn pruned(store: &Broken, key: &ConversationKey) -> Result<(), StoreError> {
    let head = store.inner.head(key).await?;
    if let Some(in_force) = head.summary.filter(|summary| summary.covers_to <= head.pruned) {
        store.inner.remove_summary(key, in_force.id).await?;
    }
    Ok(())
}

/// Copies the summaries of a conversation to its copy.
pub(super) async fn forked(
    store: &Broken,
    from: &ConversationKey,
    to: &ConversationKey,
) -> Result<(), StoreError> {
    let rewrites = store.inner.head(to).await?.rewrites;
    for mut summary in store.inner.history_summaries(from).await? {
        summary.id ^= 1;
        store.inner.add_summary(to, &summary, rewrites).await?;
    }
    Ok(())
}

/// Adds a message to a rewrite of rows alone, so that the store counts it as a rewrite of messages.
pub(super) async fn counted(store: &Broken, rewrite: &mut Rewrite) -> Result<(), StoreError> {
    if rewrite.messages.is_empty()
        && let Some(last) = store.inner.load(&rewrite.key).await?.numbered().last()
    {
        rewrite.messages.push((last.0, Message::clone(last.1)));
    }
    Ok(())
}

/// Runs the test of two processes with stores that have a fault and share their data.
async fn shared(fault: Fault) {
    let inner = MemoryStore::new();
    let open = async || {
        let store: Store = Arc::new(Broken { inner: inner.clone(), fault });
        store
    };
    store_contract::two_processes_summarize_one_conversation(open).await;
}

#[tokio::test]
async fn two_processes_summarize_one_conversation() {
    shared(Fault::Nothing).await;
}

#[tokio::test]
#[should_panic]
async fn the_contract_between_processes_detects_a_head_without_its_summary() {
    shared(Fault::HidesTheSummaryInForce).await;
}

#[tokio::test]
#[should_panic]
async fn the_contract_between_processes_detects_a_summary_that_is_added_again() {
    shared(Fault::AddsSummariesAgain).await;
}

#[tokio::test]
#[should_panic]
async fn the_contract_between_processes_detects_summaries_in_a_fork() {
    shared(Fault::ForksSummaries).await;
}
