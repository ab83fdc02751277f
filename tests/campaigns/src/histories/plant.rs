//! Stores with planted faults.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use clap::ValueEnum;
use tower_chat_core::{
    ConversationKey, Messages,
    store::{
        self, AddedSummary, ConversationRows, Fork, History, HistoryStore, HistorySummary, Journal,
        Keep, Maintenance, Pruned, Revision, Rewrite, StoreError, Summaries,
        author::{AppendError, Slot, Ticket, Write, WriteId},
    },
};

/// A fault that is planted into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// A write that conflicts with an earlier one is acknowledged, but not stored.
    LostUpdate,
    /// A write that is sent again is stored again.
    Duplicate,
    /// A load returns the last two messages in the wrong order.
    Reordering,
    /// A load returns staged messages, which must not be visible before their run is committed.
    DirtyRead,
    /// When two attempts resume a run at the same time, both are acknowledged as holders of the
    /// lease.
    TwoHolders,
    /// A summary is acknowledged, and not stored.
    LostSummary,
    /// A fork before a message also copies this message, if the message begins a turn of one message.
    LateFork,
}

impl Plant {
    /// Returns the name of the fault on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LostUpdate => "lost-update",
            Self::Duplicate => "duplicate",
            Self::Reordering => "reordering",
            Self::DirtyRead => "dirty-read",
            Self::TwoHolders => "two-holders",
            Self::LostSummary => "lost-summary",
            Self::LateFork => "late-fork",
        }
    }
}

/// Some faults occur only at every `ONCE_IN`th opportunity.
const ONCE_IN: usize = 2;

/// A store with a planted fault.
pub(super) struct Planted {
    inner: Arc<dyn HistoryStore>,
    plant: Plant,
    opportunities: AtomicUsize,
    acknowledged: Arc<Mutex<HashSet<WriteId>>>,
}

impl Planted {
    pub(super) fn new(inner: Arc<dyn HistoryStore>, plant: Plant) -> Self {
        Self { inner, plant, opportunities: AtomicUsize::new(0), acknowledged: Arc::default() }
    }

    fn is_due(&self) -> bool {
        self.opportunities.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONCE_IN)
    }
}

#[async_trait]
impl store::author::StoreWrapper for Planted {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let history = self.inner().load(key).await?;
        let mut messages: Vec<_> = history.messages.iter().cloned().collect();
        match self.plant {
            Plant::Reordering if messages.len() > 1 && self.is_due() => {
                let last = messages.len() - 1;
                messages.swap(last - 1, last);
            }
            Plant::DirtyRead if self.is_due() => {
                let open = self.inner().open_run(key).await?;
                messages.extend(open.into_iter().flat_map(|open| open.messages));
            }
            _ => return Ok(history),
        }
        Ok(History::new(history.head.clone(), messages.into_iter().collect::<Messages>()))
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let (inner, plant, is_due) = (self.inner.clone(), self.plant, self.is_due());
        let acknowledged = self.acknowledged.clone();
        let ticket = self.inner().append(slot, writes.clone());
        let (sender, faulty) = Ticket::channel();
        tokio::spawn(async move {
            let outcome = ticket.await;
            let Some(write) = writes.first() else { return sender.send(outcome) };
            sender.send(match plant {
                Plant::LostUpdate if is_due && write.as_staged().is_none() => {
                    acknowledge_conflict(outcome, write)
                }
                Plant::TwoHolders if takes_over(write) => acknowledge_conflict(outcome, write),
                Plant::Duplicate if write.as_staged().is_none() && outcome.is_ok() => {
                    match is_first(&acknowledged, write.id()) {
                        true => outcome,
                        false => append_again(&*inner, write).await,
                    }
                }
                _ => outcome,
            });
        });
        faulty
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        Some(self)
    }
}

#[async_trait]
impl Maintenance for Planted {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let before = match self.plant {
            Plant::LateFork => before.map(|before| before + 1),
            _ => before,
        };
        self.inner.fork_at(from, before, to).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.inner.prune(key, keep).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.scopes(after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.inner.rows(key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        self.inner.rewrite(rewrite).await
    }
}

#[async_trait]
impl Summaries for Planted {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.inner.history_summaries(key).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        self.inner.history_summary(key, id).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        match self.plant == Plant::LostSummary && self.is_due() {
            true => Ok(AddedSummary::Stored),
            false => self.inner.add_summary(key, summary, rewrites).await,
        }
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        self.inner.remove_summary(key, id).await
    }
}

fn is_first(acknowledged: &Mutex<HashSet<WriteId>>, id: WriteId) -> bool {
    acknowledged.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
}

fn takes_over(write: &Write) -> bool {
    write.begins_attempt() && write.as_staged().is_some_and(|staged| staged.lease.attempt > 1)
}

/// Acknowledges a write that was refused with a conflict.
fn acknowledge_conflict(
    outcome: Result<Revision, AppendError>,
    write: &Write,
) -> Result<Revision, AppendError> {
    match outcome {
        Err(AppendError { source: StoreError::Conflict(_), .. }) => Ok(write.result()),
        other => other,
    }
}

async fn append_again(store: &dyn HistoryStore, write: &Write) -> Result<Revision, AppendError> {
    let failed = |source| AppendError { completed: 0, source };
    let head = store.head(write.key()).await.map_err(failed)?;
    let messages = write.messages().iter().cloned();
    let again = Write::new(write.key().clone(), write.id(), head.revision, messages);
    let slot = store.reserve().await.map_err(failed)?;
    // The client receives the same answer as without the fault.
    drop(store.append(slot, vec![again]).await);
    Ok(write.result())
}
