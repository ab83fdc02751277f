//! A store in memory.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;

use crate::{
    ConversationKey,
    store::{
        AppendError, Conflict, Head, History, HistoryStore, Revision, Slot, StoreError,
        StoreHandle, Ticket, Write,
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
    conversations: Mutex<BTreeMap<ConversationKey, History>>,
}

impl MemoryStore {
    /// A store with no conversation.
    pub fn new() -> Self {
        Self::default()
    }

    fn conversations(&self) -> MutexGuard<'_, BTreeMap<ConversationKey, History>> {
        self.0.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, write: &Write) -> Result<Revision, StoreError> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let mut conversations = self.conversations();
        let Some(history) = conversations.get_mut(write.key()) else {
            if write.expected() != Revision::ABSENT {
                return Err(conflict(write, Revision::ABSENT));
            }
            let mut history = History::empty();
            history.apply(write);
            conversations.insert(write.key().clone(), history);
            return Ok(write.result());
        };
        if history.head.revision == write.expected() {
            history.apply(write);
        } else if !is_stored(history, write) {
            return Err(conflict(write, history.head.revision));
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
        let head = conversations.get(key).map(|history| history.head.clone());
        Ok(head.unwrap_or_else(|| Head::new(Revision::ABSENT)))
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        Ok(self.conversations().get(key).cloned().unwrap_or_else(History::empty))
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

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.closed.store(true, Ordering::Release);
        Ok(())
    }
}
