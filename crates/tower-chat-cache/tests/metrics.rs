//! Tests of the metrics of a cache. The tests need their own process, because metrics are recorded
//! for the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use tokio::sync::Mutex;
use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{HistoryStore, Revision, author::Write},
};
use tower_chat_testkit::RecordedMetrics;

/// A lock that each test acquires, so that the tests run one at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

fn key(number: usize) -> ConversationKey {
    ConversationKey::new("alice", number.to_string())
}

/// Appends a write to a conversation, and returns the revision afterwards.
async fn append(
    store: &impl HistoryStore,
    number: usize,
    expected: Revision,
    text: &str,
) -> Revision {
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key(number), id, expected, [Arc::new(Message::user(text))]);
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap()
}

fn recorded() -> RecordedMetrics {
    static RECORDED: std::sync::OnceLock<RecordedMetrics> = std::sync::OnceLock::new();
    let metrics = RECORDED.get_or_init(|| {
        let metrics = RecordedMetrics::new();
        metrics.record_process().unwrap();
        metrics
    });
    metrics.clear();
    metrics.clone()
}

#[tokio::test]
async fn a_cache_measures_its_loads_its_evictions_and_its_size() {
    let (_alone, metrics) = (ALONE.lock().await, recorded());
    let inner = MemoryStore::new();
    let text = "x".repeat(60_000);
    for number in 0..4 {
        append(&inner, number, Revision::ABSENT, &text).await;
    }
    let options = CacheOptions::new().with_max_bytes(200_000);
    let store = CachingStore::with_options(inner, options.with_revalidation(Revalidation::Never));
    for number in [0, 1, 2, 3, 3] {
        store.load(&key(number)).await.unwrap();
    }
    let statistics = store.statistics();
    assert_eq!(statistics.conversations, 3, "{statistics:?}");
    // The bytes of a conversation include those of its key: the scope `alice`, and a number of one
    // digit.
    let bytes = statistics.bytes - 3 * 6;
    assert_eq!(
        metrics.lines(),
        [
            "tower_chat.cache.entries = 3".to_owned(),
            "tower_chat.cache.evictions 1".to_owned(),
            "tower_chat.cache.loads{tower_chat.cache.result=hit} 1".to_owned(),
            "tower_chat.cache.loads{tower_chat.cache.result=miss} 4".to_owned(),
            format!("tower_chat.cache.size = {bytes}"),
        ]
    );
    store.forget(&key(3));
    assert_eq!(metrics.lines_of("tower_chat.cache.entries"), ["tower_chat.cache.entries = 2"]);
}

#[tokio::test]
async fn a_load_after_a_comparison_with_the_store_is_counted_as_revalidated() {
    let (_alone, metrics) = (ALONE.lock().await, recorded());
    let inner = MemoryStore::new();
    append(&inner, 7, Revision::ABSENT, "seven").await;
    let options = CacheOptions::new().with_revalidation(Revalidation::Always);
    let store = CachingStore::with_options(inner, options);
    store.load(&key(7)).await.unwrap();
    store.load(&key(7)).await.unwrap();
    assert_eq!(
        metrics.lines_of("tower_chat.cache.loads"),
        [
            "tower_chat.cache.loads{tower_chat.cache.result=miss} 1",
            "tower_chat.cache.loads{tower_chat.cache.result=revalidated} 1",
        ]
    );
}
