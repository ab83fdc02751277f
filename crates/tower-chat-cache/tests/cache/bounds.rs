//! Tests that the memory of the cache is bounded in bytes.

use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    ConversationKey, MemoryStore,
    store::{HistoryStore, Revision},
};
use tower_chat_testkit::FaultyStore;

use crate::common::{Cache, append, write_to};

const MAX: u64 = 200_000;

fn small() -> Cache {
    let options = CacheOptions::new().with_max_bytes(MAX).with_revalidation(Revalidation::Never);
    CachingStore::with_options(FaultyStore::new(MemoryStore::new()), options)
}

fn key(number: usize) -> ConversationKey {
    ConversationKey::new("alice", number.to_string())
}

#[tokio::test]
async fn the_least_recently_used_conversation_is_evicted_first() {
    let store = small();
    let text = "x".repeat(10_000);
    for number in 0..100 {
        let write = write_to(&key(number), Revision::ABSENT, &[&text]);
        append(store.inner(), write).await.unwrap();
    }
    for number in 0..100 {
        store.load(&key(number)).await.unwrap();
        store.load(&key(0)).await.unwrap();
        let statistics = store.statistics();
        assert!(statistics.bytes <= MAX, "{statistics:?}");
    }
    let statistics = store.statistics();
    assert!((15..=20).contains(&statistics.conversations), "{statistics:?}");
    assert!(statistics.bytes >= statistics.conversations * 10_000, "{statistics:?}");
    assert_eq!(store.inner().loads(), 100, "the conversation that was always in use is cached");
    store.load(&key(1)).await.unwrap();
    assert_eq!(store.inner().loads(), 101);
}

#[tokio::test]
async fn a_growing_conversation_evicts_other_conversations_and_finally_itself() {
    let store = small();
    let text = "x".repeat(10_000);
    for number in 0..10 {
        store.head(&key(number)).await.unwrap();
        let write = write_to(&key(number), Revision::ABSENT, &[&text]);
        append(&store, write).await.unwrap();
    }
    assert_eq!(store.statistics().conversations, 10);
    let mut at = store.head(&key(0)).await.unwrap().revision;
    for _ in 0..15 {
        at = append(&store, write_to(&key(0), at, &[&text])).await.unwrap();
        assert!(store.statistics().bytes <= MAX);
    }
    let statistics = store.statistics();
    assert!((2..=5).contains(&statistics.conversations), "{statistics:?}");
    for _ in 0..10 {
        at = append(&store, write_to(&key(0), at, &[&text])).await.unwrap();
        assert!(store.statistics().bytes <= MAX);
    }
    assert_eq!(store.load(&key(0)).await.unwrap().messages.len(), 26);
    assert_eq!(store.inner().loads(), 1, "the conversation is too large for the cache");
}
