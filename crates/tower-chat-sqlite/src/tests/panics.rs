//! Tests that a panic in the writer fails only that write.

use tower_chat_core::store::{HistoryStore, Keep, Maintenance, Revision, StoreError, author::Slot};

use super::{Fixture, first, hold_the_lead, key, run, unbounded, write};
use crate::WritePanicked;

fn assert_panicked(error: &StoreError) {
    let StoreError::Backend { source, retryable: false, .. } = error else { panic!("{error:?}") };
    assert!(source.is::<WritePanicked>(), "{error:?}");
    assert!(source.to_string().contains("made to panic"), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_group_fails_one_write_and_the_thread_continues() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.queue().writer().panics_at(key("boom"));
    let held = hold_the_lead(store).await;
    let tickets: Vec<_> = ["a", "boom", "b"]
        .map(|id| store.append(unbounded(), vec![first(id, &[id])]))
        .into_iter()
        .collect();
    drop(held);
    let mut outcomes = Vec::new();
    for ticket in tickets {
        outcomes.push(ticket.await);
    }
    assert_panicked(&outcomes[1].as_ref().unwrap_err().source);
    assert_eq!(outcomes[0].as_ref().unwrap(), &first("a", &["a"]).result());
    assert_eq!(outcomes[2].as_ref().unwrap(), &first("b", &["b"]).result());
    assert_eq!(store.head(&key("boom")).await.unwrap().revision, Revision::ABSENT);
    for id in ["a", "b"] {
        assert_eq!(fixture.texts(&key(id)).await, [id]);
    }
    let next = write("a", run(2), first("a", &["a"]).result(), &["later"]);
    fixture.submit(vec![next]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("a")).await, ["a", "later"]);
    assert!(fixture.is_intact());
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_on_the_thread_of_a_caller_fails_only_the_write_of_this_caller() {
    let fixture = Fixture::new().await;
    let store = fixture.store.clone();
    store.append(Slot::unbounded(), vec![first("a", &["before"])]).await.unwrap();
    store.queue().writer().panics_at(key("boom"));
    let appending = store.clone();
    let write = tokio::spawn(async move {
        appending.append(Slot::unbounded(), vec![first("boom", &["never"])]).await
    });
    assert_panicked(&write.await.unwrap().unwrap_err().source);
    store.append(Slot::unbounded(), vec![first("b", &["after"])]).await.unwrap();
    assert_eq!(fixture.texts(&key("b")).await, ["after"]);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_deletion_prune_fork_or_rewrite_fails_only_that_change() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.append(Slot::unbounded(), vec![first("boom", &["kept"])]).await.unwrap();
    store.queue().writer().panics_at(key("boom"));
    assert_panicked(&store.delete(&key("boom")).await.unwrap_err());
    assert_panicked(&store.prune(&key("boom"), Keep::Messages(0)).await.unwrap_err());
    assert_panicked(&store.fork_at(&key("boom"), None, &key("copy")).await.unwrap_err());
    let turn = store.run_exclusively::<()>("rewrite", |_| panic!("made to panic")).await;
    assert_panicked(&turn.unwrap_err());
    assert_eq!(fixture.texts(&key("boom")).await, ["kept"]);
    store.append(Slot::unbounded(), vec![first("c", &["goes on"])]).await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["goes on"]);
    store.close().await.unwrap();
}
