//! Writes that are gathered, and the thread that stores them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use shuttle::{future::block_on, thread};
use tower_chat_core::{
    ConversationKey, MemoryStore,
    store::{HistoryStore, Revision},
};

use super::{SLOTS, SlowStore, key, texts, write};
use crate::{
    WriteBehindStore,
    sync::{lose_notifications, try_schedules},
};

const WRITES: usize = 3;

/// Nothing is due of itself: shuttle's threads never wake because of the time.
const NEVER: Duration = Duration::from_secs(100_000);

/// Two threads write, each a conversation of its own, and read it; a third has everything stored.
fn write_and_read(max_delay: Duration) {
    let inner = SlowStore::new();
    let stored = inner.inner.clone();
    let store = WriteBehindStore::new(inner, max_delay);
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers = ["a", "b"].map(|id| {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        thread::spawn(move || write_one(&store, &key(id), &acknowledged))
    });
    let flusher = {
        let (store, stored) = (store.clone(), stored.clone());
        thread::spawn(move || {
            let least = acknowledged.load(Ordering::SeqCst);
            block_on(store.flush()).expect("it is stored");
            assert!(count(&stored) >= least, "a flush has left something");
        })
    };
    for thread in writers.into_iter().chain([flusher]) {
        thread.join().expect("it ends");
    }
    block_on(store.close()).expect("it is stored");
    assert_eq!((store.unstored_writes(), count(&stored)), (0, 2 * WRITES));
    // Its thread ends now, or shuttle says that there is a deadlock.
    drop(store);
}

fn write_one(
    store: &WriteBehindStore<SlowStore>,
    key: &ConversationKey,
    acknowledged: &AtomicUsize,
) {
    let mut expected = Revision::ABSENT;
    for number in 0..WRITES {
        let slot = block_on(store.reserve()).expect("it is open");
        let write = write(key, expected, format!("{number}"));
        let result = write.result();
        let outcome = block_on(store.append(slot, vec![write]));
        expected = outcome.expect("it is acknowledged");
        assert_eq!(expected, result);
        acknowledged.fetch_add(1, Ordering::SeqCst);
        assert!(store.unstored_writes() <= SLOTS, "more is gathered than there are slots");
    }
    let history = block_on(store.load(key)).expect("it is loaded");
    assert_eq!(texts(&history), ["0", "1", "2"]);
}

fn count(store: &MemoryStore) -> usize {
    let count = |id| block_on(store.load(&key(id))).expect("it is in memory").messages.len();
    count("a") + count("b")
}

#[test]
fn what_is_gathered_is_stored_in_order_when_somebody_asks() {
    try_schedules(|| write_and_read(NEVER));
}

#[test]
fn what_is_due_at_once_is_stored_in_order() {
    try_schedules(|| write_and_read(Duration::ZERO));
}

#[test]
fn the_rest_is_stored_once_nobody_has_the_store() {
    try_schedules(|| {
        let inner = SlowStore::new();
        let stored = inner.inner.clone();
        let store = WriteBehindStore::new(inner, NEVER);
        let mut expected = Revision::ABSENT;
        for number in 0..SLOTS {
            let slot = block_on(store.reserve()).expect("it is open");
            let write = write(&key("a"), expected, format!("{number} of the rest"));
            expected = write.result();
            block_on(store.append(slot, vec![write])).expect("it is acknowledged");
        }
        let other = store.clone();
        let dropping = thread::spawn(move || drop(other));
        drop(store);
        dropping.join().expect("it ends");
        while count(&stored) < SLOTS {
            thread::yield_now();
        }
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_notification_that_is_lost_is_found() {
    lose_notifications();
    try_schedules(|| write_and_read(NEVER));
}
