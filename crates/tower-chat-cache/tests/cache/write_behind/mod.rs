//! Tests of a store that gathers writes: when they are stored, and their failures.

mod failures;
mod gathering;
mod order;
mod runs;

use std::{sync::Arc, time::Duration};

use tower_chat_cache::WriteBehindStore;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        HistoryStore, Revision, StoreError,
        author::{AppendError, Write},
    },
};
use tower_chat_testkit::FaultyStore;

type Inner = FaultyStore<MemoryStore>;
type Behind = WriteBehindStore<Inner>;

/// A delay that does not pass during the test.
const NEVER: Duration = Duration::from_secs(100_000);

fn behind() -> Behind {
    behind_by(NEVER)
}

fn behind_by(max_delay: Duration) -> Behind {
    WriteBehindStore::new(FaultyStore::new(MemoryStore::new()), max_delay)
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

fn broken() -> StoreError {
    StoreError::backend("write", true, "disk on fire")
}

fn write(expected: Revision, text: &str) -> Write {
    write_to(&key(), expected, text)
}

fn write_to(key: &ConversationKey, expected: Revision, text: &str) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, [Arc::new(Message::user(text))])
}

async fn append(store: &dyn HistoryStore, write: Write) -> Result<Revision, AppendError> {
    store.append(store.reserve().await.unwrap(), vec![write]).await
}

/// Appends messages one by one to a conversation that may be new.
async fn append_all(store: &dyn HistoryStore, from: Revision, texts: &[&str]) -> Revision {
    let mut revision = from;
    for text in texts {
        revision = append(store, write(revision, text)).await.unwrap();
    }
    revision
}

async fn texts(store: &dyn HistoryStore) -> Vec<String> {
    store.load(&key()).await.unwrap().messages.iter().map(|message| message.text()).collect()
}

/// Returns the messages in the inner store, without the outer one.
async fn stored(store: &Behind) -> Vec<String> {
    texts(store.inner().inner()).await
}
