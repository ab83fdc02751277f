//! Tests that the queue is bounded when the disk is slow, so that callers wait for slots, and that
//! the size of a transaction is bounded.

use futures_util::FutureExt;
use tower_chat_core::store::{
    HistoryStore, Revision, StoreError,
    author::{Ticket, Write},
};

use super::{Fixture, Held, first, hold_the_lead, key, run, unbounded, write};
use crate::SqliteStore;

#[tokio::test(flavor = "multi_thread")]
async fn callers_wait_for_slots_while_the_file_is_locked_and_then_every_write_is_stored() {
    const CAPACITY: usize = 4;
    let fixture = Fixture::with(SqliteStore::options().with_max_queued(CAPACITY)).await;
    let store = &fixture.store;
    let other = fixture.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut at, mut tickets, mut texts) = (Revision::ABSENT, Vec::new(), Vec::new());
    let mut next = |number: usize| -> Write {
        texts.push(number.to_string());
        let write = write("c", run(1), at, &[&number.to_string()]);
        at = write.result();
        write
    };
    for number in 0..CAPACITY {
        let slot = store.try_reserve().expect("a place");
        tickets.push(store.append(slot, vec![next(number)]));
    }
    let mut fifth = store.reserve();
    assert!((&mut fifth).now_or_never().is_none(), "the fifth caller waits");
    assert!(store.reserve().now_or_never().is_none(), "a later caller waits too");
    assert!(store.try_reserve().is_none(), "no slot is free");
    other.execute_batch("COMMIT").unwrap();
    tickets.push(store.append(fifth.await.unwrap(), vec![next(CAPACITY)]));
    for ticket in tickets {
        ticket.await.unwrap();
    }
    assert_eq!(fixture.texts(&key("c")).await, texts);
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes() {
    let fixture = Fixture::with(SqliteStore::options().with_max_queued_bytes(10_000)).await;
    let store = &fixture.store;
    let large = "x".repeat(6_000);
    let early = store.reserve().await.unwrap().without_blocking();
    let held = Held::new(store);
    let one = fixture.submit(vec![first("a", &[&large])]).await;
    let two = fixture.submit(vec![first("b", &[&large])]).await;
    let mut third = store.reserve();
    assert!((&mut third).now_or_never().is_none(), "12,000 bytes wait");
    assert!(store.try_reserve().is_none());
    // The writes of a caller with a reserved slot do not wait, even above the limit.
    let reserved = store.append(early, vec![first("c", &[&large])]);
    drop(held);
    let third = store.append(third.await.unwrap().without_blocking(), vec![first("d", &["small"])]);
    for ticket in [one, two, reserved, third] {
        ticket.await.unwrap();
    }
    assert_eq!(fixture.texts(&key("c")).await, [large]);
    assert!(store.try_reserve().is_some(), "the whole budget is free again");
}

#[tokio::test]
async fn a_write_above_the_byte_budget_is_accepted_alone() {
    let fixture = Fixture::with(SqliteStore::options().with_max_queued_bytes(1)).await;
    for id in ["a", "b"] {
        fixture.submit(vec![first(id, &["more than one byte"])]).await.await.unwrap();
    }
}

#[tokio::test]
async fn failed_writes_release_their_bytes() {
    let fixture = Fixture::with(SqliteStore::options().with_max_queued_bytes(1)).await;
    fixture.submit(vec![first("a", &["one"])]).await.await.unwrap();
    let rival = write("a", run(9), Revision::ABSENT, &["rival"]);
    fixture.submit(vec![rival]).await.await.unwrap_err();
    fixture.submit(vec![first("b", &["two"])]).await.await.unwrap();
}

#[tokio::test]
async fn callers_that_wait_for_the_byte_budget_fail_when_the_store_closes() {
    let fixture = Fixture::with(SqliteStore::options().with_max_queued_bytes(1)).await;
    let store = &fixture.store;
    let held = Held::new(store);
    let one = fixture.submit(vec![first("a", &["one"])]).await;
    let mut waiting = store.reserve();
    assert!((&mut waiting).now_or_never().is_none());
    let mut close = store.close();
    assert!((&mut close).now_or_never().is_none());
    drop(held);
    close.await.unwrap();
    assert!(matches!(waiting.await, Err(StoreError::Closed)));
    one.await.unwrap();
}

/// Submits each text as the first message of a different conversation. All submissions wait in the
/// queue together. Returns the number of transactions that store them.
async fn transactions(texts: &[&str]) -> u64 {
    let fixture = Fixture::new().await;
    let held = hold_the_lead(&fixture.store).await;
    let submit = |(number, text): (usize, &&str)| {
        fixture.store.append(unbounded(), vec![first(&number.to_string(), &[text])])
    };
    let tickets: Vec<Ticket> = texts.iter().enumerate().map(submit).collect();
    drop(held);
    for ticket in tickets {
        ticket.await.unwrap();
    }
    for (number, text) in texts.iter().enumerate() {
        assert_eq!(fixture.texts(&key(&number.to_string())).await, [*text]);
    }
    // One of the transactions stored the write of `hold_the_lead`.
    fixture.store.statistics().commits - 1
}

#[tokio::test]
async fn a_transaction_holds_a_bounded_number_of_submissions() {
    assert_eq!(transactions(&["small"; 256]).await, 1);
    assert_eq!(transactions(&["small"; 257]).await, 2);
    assert_eq!(transactions(&["small"; 600]).await, 3);
}

#[tokio::test]
async fn a_transaction_holds_a_bounded_number_of_bytes_and_at_least_one_submission() {
    let [large, huge] = [400_000, 3_000_000].map(|size| "x".repeat(size));
    assert_eq!(transactions(&[large.as_str(); 5]).await, 3);
    assert_eq!(transactions(&["small", &huge, "small", "small", &huge]).await, 4);
}
