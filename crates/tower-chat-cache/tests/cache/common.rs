//! Stores and writes of the tests.

use std::sync::Arc;

use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        HistoryStore, Lease, LeaseEnd, Revision, StoreError,
        author::{AppendError, Close, Staged, Write},
    },
};
use tower_chat_testkit::FaultyStore;

pub(crate) type Inner = FaultyStore<MemoryStore>;
pub(crate) type Cache = CachingStore<Inner>;

/// Returns a cache that does not revalidate.
pub(crate) fn cache() -> Cache {
    cache_with(Revalidation::Never)
}

pub(crate) fn cache_with(revalidation: Revalidation) -> Cache {
    let options = CacheOptions::new().with_revalidation(revalidation);
    CachingStore::with_options(FaultyStore::new(MemoryStore::new()), options)
}

pub(crate) fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

pub(crate) fn broken() -> StoreError {
    StoreError::backend("write", true, "disk on fire")
}

pub(crate) fn write(expected: Revision, texts: &[&str]) -> Write {
    write_to(&key(), expected, texts)
}

pub(crate) fn write_to(key: &ConversationKey, expected: Revision, texts: &[&str]) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = texts.iter().map(|text| Arc::new(Message::user(*text)));
    Write::new(key.clone(), id, expected, messages)
}

pub(crate) async fn append(
    store: &dyn HistoryStore,
    write: Write,
) -> Result<Revision, AppendError> {
    store.append(store.reserve().await.unwrap(), vec![write]).await
}

pub(crate) async fn texts(store: &dyn HistoryStore) -> Vec<String> {
    store.load(&key()).await.unwrap().messages.iter().map(|message| message.text()).collect()
}

/// Returns the numbers of loads and heads that were read from a store.
pub(crate) fn reads(inner: &Inner) -> (usize, usize) {
    (inner.loads(), inner.heads())
}

pub(crate) fn staged(attempt: u32, close: Option<Close>) -> Staged {
    let renewed_at = std::time::SystemTime::UNIX_EPOCH;
    let lease = Lease { attempt, holder: 7, renewed_at, until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}
