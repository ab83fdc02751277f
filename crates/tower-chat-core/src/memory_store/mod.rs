//! A store in memory.

mod stored;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;

use self::stored::{Stored, asked_for};
use crate::{
    ConversationKey,
    store::{
        AppendError, CallPlace, Conflict, Head, History, HistoryStore, InvocationQuery,
        Invocations, Revision, Slot, StoreError, StoreHandle, Ticket, ToolTotals,
        UnreadableInvocation, Write,
    },
};

/// A store that lives and dies with the process: for tests, and where nothing need survive.
///
/// Clones share the same conversations. Loading, appending and cloning a loaded history cost the
/// same at any length.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::HistoryStore};
/// let store = MemoryStore::new();
/// let history = store.load(&ConversationKey::new("alice", "support")).await?;
/// assert!(history.messages.is_empty());
/// # Ok::<(), tower_chat_core::store::StoreError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    handle: StoreHandle,
    closed: AtomicBool,
    conversations: Mutex<BTreeMap<ConversationKey, Stored>>,
}

impl MemoryStore {
    /// A store with no conversation.
    pub fn new() -> Self {
        Self::default()
    }

    fn conversations(&self) -> MutexGuard<'_, BTreeMap<ConversationKey, Stored>> {
        self.0.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, write: &Write) -> Result<Revision, StoreError> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let mut conversations = self.conversations();
        let Some(stored) = conversations.get_mut(write.key()) else {
            if write.expected() != Revision::ABSENT {
                return Err(conflict(write, Revision::ABSENT));
            }
            let mut stored = Stored::new();
            stored.apply(write);
            conversations.insert(write.key().clone(), stored);
            return Ok(write.result());
        };
        if stored.history.head.revision == write.expected() {
            stored.apply(write);
        } else if !is_stored(&stored.history, write) {
            return Err(conflict(write, stored.history.head.revision));
        }
        Ok(write.result())
    }
}

fn conflict(write: &Write, found: Revision) -> StoreError {
    Box::new(Conflict::new(write.key().clone(), write.expected(), found)).into()
}

/// Whether the messages of a write stand in the history already, at the place it expects. A write
/// without messages is stored if nothing came after it.
fn is_stored(history: &History, write: &Write) -> bool {
    if write.messages().is_empty() {
        return history.head.revision == write.result();
    }
    let place = usize::try_from(write.expected().sequence).unwrap_or(usize::MAX);
    history.head.revision.incarnation == write.result().incarnation
        && history.messages.get(place).is_some_and(|message| message.id == Some(write.id()))
}

#[async_trait]
impl HistoryStore for MemoryStore {
    fn handle(&self) -> &StoreHandle {
        &self.0.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let conversations = self.conversations();
        let head = conversations.get(key).map(|stored| stored.history.head.clone());
        Ok(head.unwrap_or_else(|| Head::new(Revision::ABSENT)))
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let conversations = self.conversations();
        Ok(conversations.get(key).map_or_else(History::empty, |stored| stored.history.clone()))
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        Ok(Slot::unbounded())
    }

    fn append(&self, _slot: Slot, writes: Vec<Write>) -> Ticket {
        let mut outcome = Ok(Revision::ABSENT);
        for (completed, write) in writes.iter().enumerate() {
            outcome = self.store(write).map_err(|source| AppendError { completed, source });
            if outcome.is_err() {
                break;
            }
        }
        Ticket::done(outcome)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        Ok(self.conversations().remove(key).is_some())
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let conversations = self.conversations();
        let start = ConversationKey::new(scope, after.unwrap_or_default());
        let start = match after {
            Some(_) => Bound::Excluded(start),
            None => Bound::Included(start),
        };
        let keys = conversations.range((start, Bound::Unbounded)).map(|(key, _)| key);
        Ok(keys.take_while(|key| key.scope() == scope).take(limit).cloned().collect())
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        let mut invocations = Invocations::default();
        if query.asks_for_nothing() {
            return Ok(invocations);
        }
        let conversations = self.conversations();
        let rows = asked_for(&conversations, query).take(query.limit.unwrap_or(usize::MAX));
        for (key, stored, record) in rows {
            match record.resolve(|sequence| stored.message(sequence)) {
                Ok(invocation) => invocations.found.push((key.clone(), invocation)),
                Err(error) => {
                    let CallPlace { sequence, index } = record.call;
                    let reason = error.to_string();
                    invocations.unreadable.push(UnreadableInvocation::new(
                        key.clone(),
                        sequence,
                        index,
                        reason,
                    ));
                }
            }
        }
        Ok(invocations)
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        let conversations = self.conversations();
        let mut totals: BTreeMap<&str, ToolTotals> = BTreeMap::new();
        for (_, _, record) in asked_for(&conversations, query) {
            let tool = totals.entry(&record.name).or_insert_with(|| ToolTotals::new(&record.name));
            tool.count(record.status, record.started_at, record.finished_at);
        }
        Ok(totals.into_values().collect())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.closed.store(true, Ordering::Release);
        Ok(())
    }
}
