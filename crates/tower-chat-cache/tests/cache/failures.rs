//! Tests that uncertain state is not cached.

use futures_util::FutureExt;
use tower_chat_core::store::{HistoryStore, Revision, StoreError};

use crate::common::{append, broken, cache, key, reads, texts, write};

#[tokio::test]
async fn a_failed_load_or_head_is_not_cached() {
    let store = cache();
    store.inner().fail_next_load(broken());
    store.inner().fail_next_head(broken());
    let error = store.load(&key()).await.unwrap_err();
    assert_eq!(error.to_string(), broken().to_string());
    assert!(error.is_retryable());
    assert!(store.head(&key()).await.is_err());
    assert_eq!(texts(&store).await, Vec::<String>::new());
    assert!(store.head(&key()).await.is_ok());
    assert_eq!(reads(store.inner()), (2, 2));
}

#[tokio::test]
async fn a_failed_write_removes_the_cache_entry() {
    let store = cache();
    let at = append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    texts(&store).await;
    store.inner().fail_next_append(broken());
    assert!(append(&store, write(at, &["lost"])).await.is_err());
    assert_eq!(texts(&store).await, ["1"]);
    assert_eq!(store.inner().loads(), 2);
}

/// The inner store has stored the write, but its acknowledgement was lost.
#[tokio::test]
async fn a_load_returns_a_write_whose_answer_was_lost() {
    let store = cache();
    let at = append(store.inner(), write(Revision::ABSENT, &["1"])).await.unwrap();
    texts(&store).await;
    store.inner().fail_next_append_after_storing(broken());
    let stored = write(at, &["2"]);
    assert!(append(&store, stored.clone()).await.is_err());
    assert_eq!(texts(&store).await, ["1", "2"]);
    assert_eq!(append(&store, stored.clone()).await.unwrap(), stored.result());
    assert_eq!(texts(&store).await, ["1", "2"]);
    append(&store, write(stored.result(), &["3"])).await.unwrap();
    assert_eq!(texts(&store).await, ["1", "2", "3"]);
}

/// A write of another process causes one conflict.
#[tokio::test]
async fn a_load_after_a_conflict_returns_the_write_of_the_other_process() {
    let store = cache();
    texts(&store).await;
    append(store.inner(), write(Revision::ABSENT, &["theirs"])).await.unwrap();
    assert_eq!(texts(&store).await, Vec::<String>::new(), "the cache does not revalidate");
    let error = append(&store, write(Revision::ABSENT, &["ours"])).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(_)));
    assert_eq!(texts(&store).await, ["theirs"]);
}

/// While a write is in flight, reads go to the inner store, whose loads include the write.
#[tokio::test]
async fn a_load_waits_for_a_write_that_was_submitted_before_it() {
    let store = cache();
    texts(&store).await;
    store.inner().hold_appends();
    let slot = store.reserve().await.unwrap();
    let ticket = store.append(slot, vec![write(Revision::ABSENT, &["1"])]);
    assert!(store.load(&key()).now_or_never().is_none());
    assert!(store.head(&key()).now_or_never().is_none());
    store.inner().release_appends();
    assert_eq!(texts(&store).await, ["1"]);
    let loads = store.inner().loads();
    ticket.await.unwrap();
    assert_eq!(texts(&store).await, ["1"]);
    assert_eq!(store.inner().loads(), loads, "the load during the write was cached");
}

#[tokio::test]
async fn a_write_whose_ticket_is_dropped_removes_the_cache_entry() {
    for is_stored in [true, false] {
        let store = cache();
        texts(&store).await;
        store.inner().hold_appends();
        let slot = store.reserve().await.unwrap();
        let ticket = store.append(slot, vec![write(Revision::ABSENT, &["1"])]);
        drop(ticket);
        if !is_stored {
            store.inner().fail_next_append(broken());
        }
        store.inner().release_appends();
        let expected: &[&str] = if is_stored { &["1"] } else { &[] };
        assert_eq!(texts(&store).await, expected);
        assert_eq!(store.inner().loads(), 2);
        texts(&store).await;
        assert_eq!(store.inner().loads(), 2);
    }
}

/// The entry remains only if all of several concurrent writes are stored. If one of the writes
/// fails, the entry is removed.
#[tokio::test]
async fn the_cache_entry_remains_after_concurrent_writes_only_if_all_are_stored() {
    for fails in [false, true] {
        let store = cache();
        texts(&store).await;
        store.inner().hold_appends();
        let mut tickets = Vec::new();
        let mut at = Revision::ABSENT;
        for text in ["1", "2", "3"] {
            let next = write(at, &[text]);
            at = next.result();
            tickets.push(store.append(store.reserve().await.unwrap(), vec![next]));
        }
        if fails {
            store.inner().fail_next_append_after_storing(broken());
        }
        store.inner().release_appends();
        for ticket in tickets.into_iter().rev() {
            let _ = ticket.await;
        }
        assert_eq!(texts(&store).await, ["1", "2", "3"]);
        assert_eq!(store.inner().loads(), 1 + usize::from(fails));
    }
}
