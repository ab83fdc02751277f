//! Tests of gathered writes, and of the thread that stores them.

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

/// A delay that never ends, because waits never time out under shuttle.
const NEVER: Duration = Duration::from_secs(100_000);

/// Writes and reads two conversations from one thread each; a third thread flushes the store.
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
            block_on(store.flush()).expect("the writes are stored");
            assert!(count(&stored) >= least, "a flush did not store every acknowledged write");
        })
    };
    for thread in writers.into_iter().chain([flusher]) {
        thread.join().expect("the thread ends");
    }
    block_on(store.close()).expect("the writes are stored");
    assert_eq!((store.unstored_writes(), count(&stored)), (0, 2 * WRITES));
    // The store's thread must end now; otherwise shuttle reports a deadlock.
    drop(store);
}

fn write_one(
    store: &WriteBehindStore<SlowStore>,
    key: &ConversationKey,
    acknowledged: &AtomicUsize,
) {
    let mut expected = Revision::ABSENT;
    for number in 0..WRITES {
        let slot = block_on(store.reserve()).expect("the store is open");
        let write = write(key, expected, format!("{number}"));
        let result = write.result();
        let outcome = block_on(store.append(slot, vec![write]));
        expected = outcome.expect("the write is acknowledged");
        assert_eq!(expected, result);
        acknowledged.fetch_add(1, Ordering::SeqCst);
        assert!(store.unstored_writes() <= SLOTS, "more writes are gathered than there are slots");
    }
    let history = block_on(store.load(key)).expect("it is loaded");
    assert_eq!(texts(&history), ["0", "1", "2"]);
}

fn count(store: &MemoryStore) -> usize {
    let count =
        |id| block_on(store.load(&key(id))).expect("a load from memory succeeds").messages.len();
    count("a") + count("b")
}

#[test]
fn a_flush_stores_gathered_writes_in_order() {
    try_schedules(|| write_and_read(NEVER));
}

#[test]
fn writes_without_a_delay_are_stored_in_order() {
    try_schedules(|| write_and_read(Duration::ZERO));
}

#[test]
fn dropping_the_last_handle_stores_the_remaining_writes() {
    try_schedules(|| {
        let inner = SlowStore::new();
        let stored = inner.inner.clone();
        let store = WriteBehindStore::new(inner, NEVER);
        let mut expected = Revision::ABSENT;
        for number in 0..SLOTS {
            let slot = block_on(store.reserve()).expect("the store is open");
            let write = write(&key("a"), expected, format!("{number} of the rest"));
            expected = write.result();
            block_on(store.append(slot, vec![write])).expect("the write is acknowledged");
        }
        let other = store.clone();
        let dropping = thread::spawn(move || drop(other));
        drop(store);
        dropping.join().expect("the thread ends");
        while count(&stored) < SLOTS {
            thread::yield_now();
        }
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_notification_is_found() {
    lose_notifications();
    try_schedules(|| write_and_read(NEVER));
}
