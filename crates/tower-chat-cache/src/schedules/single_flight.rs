//! Tests of concurrent loads of one conversation, during writes to it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shuttle::future::{self, block_on};
use tower_chat_core::store::{HistoryStore, Revision};

use super::{SlowStore, key, texts, write};
use crate::{CacheOptions, CachingStore, Revalidation, sync::try_schedules};

const WRITES: usize = 3;

/// Returns a cache that does not revalidate, because no other process writes to its store.
fn without_revalidation(inner: SlowStore) -> CachingStore<SlowStore> {
    let options = CacheOptions::new().with_revalidation(Revalidation::Never);
    CachingStore::with_options(inner, options)
}

/// Loads the same conversation from four readers concurrently. If `is_cancelled`, the first reader
/// drops its load. Returns the number of loads of the inner store.
fn loads(is_cancelled: bool) -> usize {
    let inner = SlowStore::new();
    let (loads, store) = (inner.loads.clone(), without_revalidation(inner));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let store = store.clone();
            future::spawn(async move { store.load(&key("a")).await.is_ok() })
        })
        .collect();
    for (number, reader) in readers.into_iter().enumerate() {
        let is_cancelled = is_cancelled && number == 0;
        if is_cancelled {
            reader.abort();
        }
        let loaded = block_on(reader);
        assert!(loaded.map_or(is_cancelled, |is_loaded| is_loaded));
    }
    assert!(store.conversations().in_flight().is_over());
    loads.load(Ordering::SeqCst)
}

#[test]
fn concurrent_loads_share_one_load() {
    try_schedules(|| assert_eq!(loads(false), 1));
}

#[test]
fn a_load_whose_caller_is_dropped_is_continued_or_repeated_for_the_other_caller() {
    try_schedules(|| assert!((1..=2).contains(&loads(true))));
}

#[test]
fn a_failed_load_fails_only_the_callers_that_share_it() {
    try_schedules(|| {
        let inner = SlowStore { failing_loads: 1, ..SlowStore::new() };
        let store = without_revalidation(inner);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                future::spawn(async move {
                    let first = store.load(&key("a")).await;
                    first.is_ok() || store.load(&key("a")).await.is_ok()
                })
            })
            .collect();
        for reader in readers {
            assert!(
                block_on(reader).expect("the task ends"),
                "the second load does not fail with the first"
            );
        }
        assert!(store.conversations().in_flight().is_over());
    });
}

/// Checks that a load contains every write that was acknowledged before the load began, and no
/// write that was not submitted.
fn read_during_writes(store: &CachingStore<SlowStore>) {
    let submitted = Arc::new(AtomicUsize::new(0));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, submitted, acknowledged) =
                (store.clone(), submitted.clone(), acknowledged.clone());
            future::spawn(async move {
                for _ in 0..3 {
                    let least = acknowledged.load(Ordering::SeqCst);
                    let history = store.load(&key("a")).await.expect("the load succeeds");
                    let max = submitted.load(Ordering::SeqCst);
                    let seen = texts(&history);
                    let expected: Vec<_> = (0..seen.len()).map(|it| format!("{it}")).collect();
                    assert_eq!(seen, expected);
                    let count = seen.len();
                    assert!((least..=max).contains(&count), "{count} of {least} to {max}");
                }
            })
        })
        .collect();
    let mut expected = Revision::ABSENT;
    for number in 0..WRITES {
        let write = write(&key("a"), expected, format!("{number}"));
        expected = write.result();
        submitted.fetch_add(1, Ordering::SeqCst);
        let slot = block_on(store.reserve()).expect("the store is open");
        block_on(store.append(slot, vec![write])).expect("the write is stored");
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
    readers.into_iter().for_each(|reader| block_on(reader).expect("the task ends"));
    let history = block_on(store.load(&key("a"))).expect("the load succeeds");
    assert_eq!(history.messages.len(), WRITES);
    assert!(store.conversations().in_flight().is_over());
}

#[test]
fn a_load_contains_earlier_acknowledged_writes() {
    try_schedules(|| read_during_writes(&without_revalidation(SlowStore::new())));
}

#[test]
fn a_revalidated_load_contains_earlier_acknowledged_writes() {
    try_schedules(|| read_during_writes(&CachingStore::new(SlowStore::new())));
}

#[test]
#[should_panic(expected = " of ")]
fn the_search_through_schedules_detects_a_store_whose_loads_miss_submissions() {
    let late = || SlowStore { is_late: true, ..SlowStore::new() };
    try_schedules(move || read_during_writes(&without_revalidation(late())));
}
