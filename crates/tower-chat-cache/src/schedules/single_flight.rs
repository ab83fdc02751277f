//! Concurrent loads of one conversation, while it is written.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shuttle::future::{self, block_on};
use tower_chat_core::store::{HistoryStore, Revision};

use super::{SlowStore, key, texts, write};
use crate::{CacheOptions, CachingStore, Revalidation, sync::try_schedules};

const WRITES: usize = 3;

/// A cache that does not ask its store for changes, since no other process writes to it.
fn alone(inner: SlowStore) -> CachingStore<SlowStore> {
    let options = CacheOptions::new().with_revalidation(Revalidation::Never);
    CachingStore::with_options(inner, options)
}

/// Four readers load the same conversation at the same time, and the first may be cancelled. Returns how
/// many loads reached the store.
fn loads(is_cancelled: bool) -> usize {
    let inner = SlowStore::new();
    let (loads, store) = (inner.loads.clone(), alone(inner));
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
fn loads_at_the_same_time_are_one() {
    try_schedules(|| assert_eq!(loads(false), 1));
}

#[test]
fn a_load_whose_caller_goes_away_goes_on_for_another_or_is_begun_again() {
    try_schedules(|| assert!((1..=2).contains(&loads(true))));
}

#[test]
fn a_load_that_fails_fails_those_who_share_it_and_no_later_one() {
    try_schedules(|| {
        let inner = SlowStore { failing_loads: 1, ..SlowStore::new() };
        let store = alone(inner);
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
                block_on(reader).expect("it ends"),
                "the second load finds nothing of the first"
            );
        }
        assert!(store.conversations().in_flight().is_over());
    });
}

/// Readers see what was acknowledged before they asked, and nothing that was not submitted.
fn read_while_it_is_written(store: &CachingStore<SlowStore>) {
    let submitted = Arc::new(AtomicUsize::new(0));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, submitted, acknowledged) =
                (store.clone(), submitted.clone(), acknowledged.clone());
            future::spawn(async move {
                for _ in 0..3 {
                    let least = acknowledged.load(Ordering::SeqCst);
                    let history = store.load(&key("a")).await.expect("it is loaded");
                    let most = submitted.load(Ordering::SeqCst);
                    let seen = texts(&history);
                    let expected: Vec<_> = (0..seen.len()).map(|it| format!("{it}")).collect();
                    assert_eq!(seen, expected);
                    let count = seen.len();
                    assert!((least..=most).contains(&count), "{count} of {least} to {most}");
                }
            })
        })
        .collect();
    let mut expected = Revision::ABSENT;
    for number in 0..WRITES {
        let write = write(&key("a"), expected, format!("{number}"));
        expected = write.result();
        submitted.fetch_add(1, Ordering::SeqCst);
        let slot = block_on(store.reserve()).expect("it is open");
        block_on(store.append(slot, vec![write])).expect("it is stored");
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
    readers.into_iter().for_each(|reader| block_on(reader).expect("it ends"));
    let history = block_on(store.load(&key("a"))).expect("it is loaded");
    assert_eq!(history.messages.len(), WRITES);
    assert!(store.conversations().in_flight().is_over());
}

#[test]
fn a_load_sees_what_was_acknowledged_before_it() {
    try_schedules(|| read_while_it_is_written(&alone(SlowStore::new())));
}

#[test]
fn a_load_that_asks_for_the_head_sees_what_was_acknowledged_before_it() {
    try_schedules(|| read_while_it_is_written(&CachingStore::new(SlowStore::new())));
}

#[test]
#[should_panic(expected = " of ")]
fn a_store_whose_loads_do_not_see_what_was_submitted_is_found() {
    let late = || SlowStore { is_late: true, ..SlowStore::new() };
    try_schedules(move || read_while_it_is_written(&alone(late())));
}
