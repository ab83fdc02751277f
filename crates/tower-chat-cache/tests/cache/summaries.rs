//! Tests of summaries through a cache.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_core::{
    MemoryStore,
    store::{AddedSummary, HistoryStore, HistorySummary, Revision, Summaries},
};
use tower_chat_testkit::{FaultyStore, Injection, Operation};

use crate::common::{Cache, append, cache_with, key, reads, texts, write};

/// Writes messages, and returns a summary of the messages up to a sequence number.
async fn summary(store: &dyn HistoryStore, covers_to: u64) -> HistorySummary {
    let history = store.load(&key()).await.unwrap();
    let last = history.message(covers_to).unwrap().id.unwrap();
    HistorySummary::new(covers_to, last, format!("up to {covers_to}"))
}

async fn add(store: &dyn HistoryStore, summary: &HistorySummary) {
    let added = store.add_summary(&key(), summary, 0).await.unwrap();
    assert_eq!(added, AddedSummary::Stored);
}

/// Loads the conversation, and returns the id of the summary in force.
async fn in_force(store: &Cache) -> Option<u64> {
    store.load(&key()).await.unwrap().head.summary.map(|summary| summary.id)
}

#[tokio::test]
async fn adding_or_removing_a_summary_keeps_the_messages_in_the_cache() {
    let store = cache_with(Revalidation::Never);
    append(&store, write(Revision::ABSENT, &["1", "2"])).await.unwrap();
    let first = summary(&store, 1).await;
    let before = reads(store.inner());
    add(&store, &first).await;
    assert_eq!(in_force(&store).await, Some(first.id));
    assert_eq!(reads(store.inner()), (before.0, before.1 + 1), "the head is read, and no message");
    assert_eq!(in_force(&store).await, Some(first.id));
    assert_eq!(texts(&store).await, ["1", "2"]);
    assert!(store.remove_summary(&key(), first.id).await.unwrap());
    assert_eq!(in_force(&store).await, None);
    assert_eq!(reads(store.inner()), (before.0, before.1 + 2));
    assert_eq!(store.head(&key()).await.unwrap().summary, None);
}

#[tokio::test]
async fn adding_a_summary_during_a_write_keeps_the_messages_in_the_cache() {
    let store = cache_with(Revalidation::Never);
    let at = append(&store, write(Revision::ABSENT, &["1", "2"])).await.unwrap();
    let first = summary(&store, 1).await;
    let before = store.inner().loads();
    store.inner().hold_appends();
    let slot = store.reserve().await.unwrap();
    let ticket = store.append(slot, vec![write(at, &["3"])]);
    let adding = add(&store, &first);
    store.inner().release_appends();
    adding.await;
    ticket.await.unwrap();
    assert_eq!(in_force(&store).await, Some(first.id));
    assert_eq!(texts(&store).await, ["1", "2", "3"]);
    assert_eq!(store.inner().loads(), before);
}

#[tokio::test]
async fn the_head_contains_a_summary_that_another_process_has_added() {
    let store = cache_with(Revalidation::Always);
    append(&store, write(Revision::ABSENT, &["1", "2"])).await.unwrap();
    let first = summary(&store, 1).await;
    assert_eq!(in_force(&store).await, None);
    add(store.inner(), &first).await;
    assert_eq!(in_force(&store).await, Some(first.id));
    assert_eq!(store.inner().loads(), 1, "no message is read again");
    let read = store.history_summary(&key(), first.id).await.unwrap();
    assert_eq!(read, Some(first.clone()));
    store.inner().remove_summary(&key(), first.id).await.unwrap();
    assert_eq!(in_force(&store).await, None);
    assert_eq!(store.history_summary(&key(), first.id).await.unwrap(), None);
}

#[tokio::test]
async fn the_text_of_the_summary_in_force_is_read_once() {
    let counts = Arc::new(AtomicUsize::new(0));
    let counted = counts.clone();
    let inner = FaultyStore::with_injector(MemoryStore::new(), move |operation| {
        if operation == Operation::HistorySummary {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Injection::none()
    });
    let options = CacheOptions::new().with_revalidation(Revalidation::Always);
    let store = CachingStore::with_options(inner, options);
    let at = append(&store, write(Revision::ABSENT, &["1", "2", "3"])).await.unwrap();
    let (first, second) = (summary(&store, 1).await, summary(&store, 2).await);
    let read = async |summary: &HistorySummary| {
        assert_eq!(in_force(&store).await, Some(summary.id));
        let read = store.history_summary(&key(), summary.id).await.unwrap();
        assert_eq!(read.as_ref(), Some(summary));
        counts.load(Ordering::Relaxed)
    };
    add(&store, &first).await;
    assert_eq!([read(&first).await, read(&first).await], [1, 1]);
    append(&store, write(at, &["4"])).await.unwrap();
    assert_eq!(read(&first).await, 1, "a write does not change it");
    add(&store, &second).await;
    assert_eq!([read(&second).await, read(&second).await], [2, 2]);
    assert_eq!(store.history_summary(&key(), first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(read(&second).await, 3, "an earlier summary is not cached");
    assert!(store.remove_summary(&key(), second.id).await.unwrap());
    assert_eq!(store.history_summary(&key(), second.id).await.unwrap(), None);
    assert_eq!(read(&first).await, 5);
    store.forget(&key());
    assert_eq!(store.history_summary(&key(), first.id).await.unwrap(), Some(first));
    assert_eq!(counts.load(Ordering::Relaxed), 6);
}
