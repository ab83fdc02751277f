//! Tests of several processes that use one store.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    MemoryStore,
    store::{
        HistoryStore, Revision, StoreError,
        author::{Close, Write},
    },
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::FaultyStore;

use crate::common::{append, broken, cache_with, key, reads, staged, texts, write};

#[tokio::test]
async fn with_always_a_load_of_an_unchanged_conversation_reads_only_the_head() {
    let store = cache_with(Revalidation::Always);
    let at = append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    for heads in 0..3 {
        assert_eq!(texts(&store).await, ["1"]);
        assert_eq!(reads(store.inner()), (1, heads));
    }
    assert_eq!(store.statistics().revalidated, 2);
    // A run reads the head before the history. Neither read is a miss as long as the conversation
    // has not changed.
    store.head(&key()).await.unwrap();
    let statistics = store.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.revalidated), (0, 1, 3));
    let at = append(store.inner(), write(at, &["theirs"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "theirs"]);
    assert_eq!(reads(store.inner()), (2, 4));
    store.inner().delete(&key()).await.unwrap();
    assert_eq!(texts(&store).await, Vec::<String>::new());
    assert_eq!(store.head(&key()).await.unwrap().revision, Revision::ABSENT);
    assert!(append(&store, write(at, &["late"])).await.is_err());
}

#[tokio::test]
async fn a_load_fails_if_the_head_cannot_be_read_and_the_cache_entry_remains() {
    let store = cache_with(Revalidation::Always);
    texts(&store).await;
    store.inner().fail_next_head(broken());
    assert!(store.load(&key()).await.is_err());
    texts(&store).await;
    assert_eq!(store.inner().loads(), 1);
}

/// A commit without messages does not change the revision, and makes staged messages visible.
#[tokio::test]
async fn a_load_returns_a_commit_of_another_process_although_the_revision_is_the_same() {
    let store = cache_with(Revalidation::Always);
    let first = write(Revision::ABSENT, &["staged"]).staged(staged(1, None));
    append(&store, first.clone()).await.unwrap();
    assert_eq!(texts(&store).await, Vec::<String>::new());
    let id = tower_chat_core::MessageId { run: first.run(), index: 1 };
    let commit = Write::new(key(), id, first.result(), []).staged(staged(1, Some(Close::Commit)));
    assert_eq!(commit.result(), first.result());
    append(store.inner(), commit).await.unwrap();
    assert_eq!(texts(&store).await, ["staged"]);
    assert_eq!(store.load(&key()).await.unwrap().head.open_run, None);
}

#[tokio::test]
async fn a_cache_entry_is_compared_with_the_head_after_the_configured_duration() {
    let start = Instant::now();
    let now = Arc::new(Mutex::new(start));
    let clock = now.clone();
    let options = CacheOptions::new()
        .with_revalidation(Revalidation::After(Duration::from_secs(10)))
        .with_clock(move || *clock.lock().unwrap());
    let store = CachingStore::with_options(FaultyStore::new(MemoryStore::new()), options);
    let at = |seconds| *now.lock().unwrap() = start + Duration::from_secs(seconds);
    let first = append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    store.head(&key()).await.unwrap();
    assert_eq!(texts(&store).await, ["1"]);
    append(store.inner(), write(first, &["theirs"])).await.unwrap();
    at(9);
    assert_eq!(texts(&store).await, ["1"], "not noticed yet");
    assert_eq!(store.head(&key()).await.unwrap().revision, first);
    assert_eq!(reads(store.inner()), (1, 1));
    at(10);
    assert_eq!(texts(&store).await, ["1", "theirs"]);
    assert_eq!(reads(store.inner()), (2, 2));
    at(19);
    texts(&store).await;
    assert_eq!(reads(store.inner()), (2, 2));
    at(20);
    texts(&store).await;
    assert_eq!(reads(store.inner()), (2, 3), "the head shows that nothing has changed");
    at(29);
    texts(&store).await;
    assert_eq!(reads(store.inner()), (2, 3));
}

#[tokio::test]
async fn a_load_returns_a_conversation_created_again_elsewhere_with_the_same_length() {
    let store = cache_with(Revalidation::Always);
    append(&store, write(Revision::ABSENT, &["old"])).await.unwrap();
    assert_eq!(texts(&store).await, ["old"]);
    store.inner().delete(&key()).await.unwrap();
    append(store.inner(), write(Revision::ABSENT, &["new"])).await.unwrap();
    assert_eq!(texts(&store).await, ["new"]);
}

/// A second store that opens the same file acts like another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caching_store_and_another_store_on_one_file_load_each_others_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let theirs = SqliteStore::open(&path).await.unwrap();
    let store = CachingStore::new(FaultyStore::new(SqliteStore::open(&path).await.unwrap()));
    let never = CacheOptions::new().with_revalidation(Revalidation::Never);
    let alone = CachingStore::with_options(SqliteStore::open(&path).await.unwrap(), never);
    let mut at = Revision::ABSENT;
    let mut expected = Vec::new();
    for round in 0..5 {
        let text = format!("theirs {round}");
        at = append(&theirs, write(at, &[&text])).await.unwrap();
        expected.push(text);
        assert_eq!(texts(&store).await, expected);
        let text = format!("ours {round}");
        at = append(&store, write(at, &[&text])).await.unwrap();
        expected.push(text);
        assert_eq!(texts(&theirs).await, expected);
        let loads = store.inner().loads();
        assert_eq!(texts(&store).await, expected);
        assert_eq!(store.inner().loads(), loads, "the cache contains the write of this process");
    }
    assert_eq!(texts(&alone).await, expected);
    let behind = at;
    let at = append(&theirs, write(at, &["last"])).await.unwrap();
    assert_eq!(texts(&alone).await, expected);
    let error = append(&alone, write(behind, &["too late"])).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(_)));
    expected.push("last".into());
    assert_eq!(texts(&alone).await, expected, "the cache reads again after a conflict");
    assert_eq!(alone.head(&key()).await.unwrap().revision, at);
}
