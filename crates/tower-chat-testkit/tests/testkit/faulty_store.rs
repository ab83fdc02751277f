//! Tests that the operations of a [`FaultyStore`] fail and wait as prepared, and not otherwise.

use futures_util::FutureExt;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{
        HistoryStore, InvocationQuery, Revision, StoreError, ToolCallQueries,
        author::{AppendError, Write},
    },
};
use tower_chat_testkit::{FaultyStore, Gate};

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

fn store() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::new())
}

fn error() -> StoreError {
    StoreError::backend("test", true, "on command")
}

fn write(key: &ConversationKey, expected: Revision) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, [Message::user("x").into()])
}

async fn submit(
    store: &FaultyStore<MemoryStore>,
    writes: Vec<Write>,
) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.unwrap();
    store.append(slot, writes).await
}

async fn stored(store: &FaultyStore<MemoryStore>, key: &ConversationKey) -> usize {
    store.inner().load(key).await.unwrap().messages.len()
}

#[tokio::test]
async fn each_load_head_and_reservation_fails_as_often_as_configured() {
    let store = store();
    store.fail_next_load(error());
    store.fail_next_load(StoreError::ReadOnly);
    store.fail_next_head(error());
    store.fail_next_reserve(StoreError::Closed);
    assert!(store.load(&key("a")).await.unwrap_err().is_retryable());
    assert!(matches!(store.load(&key("a")).await, Err(StoreError::ReadOnly)));
    assert!(store.clone().load(&key("a")).await.is_ok());
    assert!(store.head(&key("a")).await.is_err());
    assert!(store.head(&key("a")).await.is_ok());
    assert!(matches!(store.reserve().await, Err(StoreError::Closed)));
    assert!(store.reserve().await.is_ok());
    assert_eq!((store.loads(), store.heads(), store.reserves()), (3, 2, 2));
}

#[tokio::test]
async fn a_query_of_the_record_fails_and_waits_as_configured() {
    let store = store();
    let query = InvocationQuery::of(&key("a"));
    store.fail_next_query(error());
    store.fail_next_query(StoreError::ReadOnly);
    assert!(store.invocations(&query).await.unwrap_err().is_retryable());
    assert!(matches!(store.tool_totals(&query).await, Err(StoreError::ReadOnly)));
    store.fail_next_query(error());
    store.heal();
    assert!(store.invocations(&query).await.is_ok());
    assert!(store.tool_totals(&query).await.is_ok());
    assert_eq!(store.queries(), 4);

    store.hold_appends();
    let slot = store.reserve().await.unwrap();
    let ticket = store.append(slot, vec![write(&key("a"), Revision::ABSENT)]);
    let (other, scope) = (InvocationQuery::of(&key("b")), InvocationQuery::in_scope("alice"));
    for query in [&query, &scope] {
        assert!(store.invocations(query).now_or_never().is_none(), "it sees what was submitted");
        assert!(store.tool_totals(query).now_or_never().is_none());
    }
    for query in [&other, &InvocationQuery::in_scope("bob")] {
        assert!(store.invocations(query).now_or_never().is_some());
    }
    store.release_appends();
    ticket.await.unwrap();
    assert!(store.tool_totals(&scope).now_or_never().is_some());
}

#[tokio::test]
async fn a_submission_fails_before_between_or_after_its_writes_are_stored() {
    let (store, key) = (store(), key("a"));
    let first = write(&key, Revision::ABSENT);
    let second = write(&key, first.result());
    let both = vec![first.clone(), second.clone()];

    store.fail_next_append(error());
    let failed = submit(&store, both.clone()).await.unwrap_err();
    assert_eq!((failed.completed, stored(&store, &key).await), (0, 0));

    store.fail_next_append_at(1, error());
    let failed = submit(&store, both.clone()).await.unwrap_err();
    assert_eq!((failed.completed, stored(&store, &key).await), (1, 1));

    store.fail_next_append_after_storing(error());
    let failed = submit(&store, vec![second.clone()]).await.unwrap_err();
    assert_eq!((failed.completed, stored(&store, &key).await), (0, 2));

    assert_eq!(submit(&store, vec![second.clone()]).await.unwrap(), second.result());
    assert_eq!(stored(&store, &key).await, 2);
    assert_eq!(store.appends(), 4);
    let ids: Vec<_> = store.writes().iter().map(Write::id).collect();
    let (first, second) = (first.id(), second.id());
    assert_eq!(ids, [first, second, first, second, second, second]);
}

#[tokio::test]
async fn a_failure_of_the_inner_store_takes_precedence_over_a_configured_failure() {
    let (store, key) = (store(), key("a"));
    let wrong = write(&key, Revision { incarnation: 1, sequence: 1 });
    store.fail_next_append_after_storing(error());
    let failed = submit(&store, vec![wrong]).await.unwrap_err();
    assert!(matches!(failed.source, StoreError::Conflict(_)));
}

#[tokio::test]
async fn every_submission_fails_until_the_store_is_healed() {
    let (store, key) = (store(), key("a"));
    let write = write(&key, Revision::ABSENT);
    store.fail_every_append(error);
    store.fail_next_load(error());
    for _ in 0..3 {
        assert!(submit(&store, vec![write.clone()]).await.is_err());
    }
    store.heal();
    assert!(submit(&store, vec![write]).await.is_ok());
    assert_eq!(store.load(&key).await.unwrap().messages.len(), 1);
}

#[tokio::test]
async fn held_submissions_are_stored_in_order_after_their_release() {
    let (store, key, other) = (store(), key("a"), key("b"));
    store.hold_appends();
    let first = write(&key, Revision::ABSENT);
    let second = write(&key, first.result());
    let mut kept = store.append(store.reserve().await.unwrap(), vec![first]);
    drop(store.append(store.reserve().await.unwrap(), vec![second]));
    store.holding(2).await;
    assert_eq!(stored(&store, &key).await, 0);
    assert!((&mut kept).now_or_never().is_none());
    assert!(store.load(&key).now_or_never().is_none(), "a load waits for what was submitted");
    assert!(store.head(&key).now_or_never().is_none());
    assert!(store.flush().now_or_never().is_none());
    assert!(store.load(&other).now_or_never().is_some(), "another conversation does not wait");
    let load = tokio::spawn({
        let (store, key) = (store.clone(), key.clone());
        async move { store.load(&key).await }
    });
    store.release_appends();
    assert_eq!(kept.await.unwrap().sequence, 1);
    assert_eq!(load.await.unwrap().unwrap().messages.len(), 2);
    let third = write(&key, store.head(&key).await.unwrap().revision);
    assert_eq!(submit(&store, vec![third]).await.unwrap().sequence, 3);
}

#[tokio::test]
async fn a_configured_failure_applies_to_a_held_submission_at_its_release() {
    let (store, key) = (store(), key("a"));
    store.hold_appends();
    let ticket = store.append(store.reserve().await.unwrap(), vec![write(&key, Revision::ABSENT)]);
    store.fail_next_append(error());
    store.release_appends();
    assert!(ticket.await.is_err());
    assert_eq!(stored(&store, &key).await, 0);
}

#[tokio::test]
async fn a_load_waits_at_its_gate_and_reads_afterwards() {
    let (store, key, gate) = (store(), key("a"), Gate::closed());
    store.hold_next_load(&gate);
    let load = tokio::spawn({
        let (store, key) = (store.clone(), key.clone());
        async move { store.load(&key).await }
    });
    gate.reached(1).await;
    assert!(store.load(&key).now_or_never().is_some(), "only the next load waits");
    submit(&store, vec![write(&key, Revision::ABSENT)]).await.unwrap();
    gate.open();
    assert_eq!(load.await.unwrap().unwrap().messages.len(), 1);
}

#[tokio::test]
async fn a_faulty_store_is_the_same_store_as_its_inner_store() {
    let store = store();
    assert!(store.handle().is_same_store(store.inner().handle()));
    assert!(store.handle().is_same_store(store.clone().handle()));
}
