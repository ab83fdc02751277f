//! Tests of connections that the server closes, and of lost answers.

use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::common::{append, key, open, options, proxy::Proxy, quoted, raw, server, texts, write};
use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Part, Role, RunId, ToolCall, ToolStatus,
    store::{
        HistoryStore, Revision, SequencePosition, StoreError,
        author::{Claim, ToolRecord, Write},
    },
};
use tower_chat_postgres::PostgresStore;

/// Opens a store with one connection, which goes through a proxy. The store has already stored a
/// write.
async fn through_a_proxy() -> (Proxy, PostgresStore) {
    let (proxy, address) = Proxy::start(&server().address("postgres")).await;
    let store = options().with_max_connections(1).connect(&address).await.unwrap();
    append(&store, write(&key("first"), Revision::ABSENT, &["x"])).await.unwrap();
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_is_one_round_trip() {
    let (proxy, store) = through_a_proxy().await;
    let key = key("one round trip");
    let (before, begun) = (proxy.asked(), Instant::now());
    // The store also reads the mark that records whether it contains sealed data: before each write
    // that creates a conversation, and whenever the cached mark is older than a second.
    let asked_for = |appends: usize, of_new_conversations: usize| {
        let checks = proxy.asked() - before - appends;
        let max = of_new_conversations + usize::try_from(begun.elapsed().as_secs()).unwrap();
        let wanted = of_new_conversations..=max;
        assert!(wanted.contains(&checks), "{checks} checks beside {appends} appends");
    };
    let mut revision = Revision::ABSENT;
    for texts in [&["a"][..], &["b", "c", "d"]] {
        revision = append(&store, write(&key, revision, texts)).await.unwrap();
    }
    asked_for(2, 1);
    // A write to a conversation that already exists is a conflict after one round trip.
    append(&store, write(&key, Revision::ABSENT, &["x"])).await.unwrap_err();
    asked_for(3, 2);
    assert_eq!(texts(&store, &key).await, ["a", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_was_lost_is_stored_once() {
    let (proxy, store) = through_a_proxy().await;
    let key = key("answer lost");
    proxy.lose_the_next_answer();
    let first = write(&key, Revision::ABSENT, &["a", "b"]);
    let revision = append(&store, first.clone()).await.unwrap();
    assert_eq!((revision, proxy.lost()), (first.result(), 1));
    assert_eq!(texts(&store, &key).await, ["a", "b"]);

    let service_id = tower_chat_core::store::ServiceIdChange::Set("conv_1".into());
    let id = write(&key, revision, &[]).with_service_id(service_id);
    proxy.lose_the_next_answer();
    assert_eq!(append(&store, id).await.unwrap(), revision);
    assert_eq!(proxy.lost(), 2);
    assert_eq!(store.head(&key).await.unwrap().service_id.as_deref(), Some("conv_1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_not_sent_again() {
    let (proxy, store) = through_a_proxy().await;
    let key = key("claim");
    let request = ApprovalRequest::new("request", ToolCall::new("call", "pay", "{}"), true);
    let asking = Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]);
    let call = SequencePosition { sequence: 1, index: 0 };
    let mut row = ToolRecord::pending(call, 0, "call", "pay");
    row.status = ToolStatus::PendingApproval;
    let id = MessageId { run: RunId::new(), index: 0 };
    let asked = Write::new(key.clone(), id, Revision::ABSENT, [asking.into()]);
    let revision = append(&store, asked.with_tools(vec![row.clone()])).await.unwrap();

    row.started_at = Some(UNIX_EPOCH + Duration::from_secs(1));
    let claim = Claim { call, started_at: None };
    let claiming = write(&key, revision, &[]).with_tools(vec![row]).with_claims(vec![claim]);
    proxy.lose_the_next_answer();
    let error = append(&store, claiming.clone()).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Backend { .. }), "{error:?}");
    assert!(!error.is_retryable(), "the outcome is unknown");
    // The server has stored the claim. It refuses the repeated write, because the call is already
    // claimed.
    let error = append(&store, claiming).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Claimed { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_whose_answer_was_lost_fails_with_an_error_that_is_not_retryable() {
    let (proxy, store) = through_a_proxy().await;
    store.delete(&key("nothing")).await.unwrap();
    proxy.lose_the_next_answer();
    let error = store.delete(&key("first")).await.unwrap_err();
    assert!(!error.is_retryable());
    assert_eq!(store.head(&key("first")).await.unwrap().revision, Revision::ABSENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_answer_was_lost_is_sent_again() {
    let (proxy, store) = through_a_proxy().await;
    assert_eq!(texts(&store, &key("first")).await, ["x"]);
    proxy.lose_the_next_answer();
    assert_eq!(texts(&store, &key("first")).await, ["x"]);
    assert_eq!(proxy.lost(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_too_long_for_a_lock_is_not_stored_and_can_be_sent_again() {
    let schema = crate::common::schema();
    // The timeout is long enough for requests that do not wait for a lock, even on a busy machine.
    let options = PostgresStore::options()
        .with_schema(&schema)
        .with_statement_timeout(Duration::from_secs(3));
    let store = open(options).await;
    let key = key("locked");
    let revision = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();

    let mut other = raw(&server().address("postgres")).await;
    let transaction = other.transaction().await.unwrap();
    let table = format!("{}.conversations", quoted(&schema));
    transaction.execute(&format!("SELECT 1 FROM {table} FOR UPDATE"), &[]).await.unwrap();
    let waiting = write(&key, revision, &["b"]);
    let error = append(&store, waiting.clone()).await.unwrap_err().source;
    assert!(error.is_retryable(), "{error:?}");
    transaction.rollback().await.unwrap();
    append(&store, waiting).await.unwrap();
    assert_eq!(texts(&store, &key).await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_writes_are_stored_after_the_last_handle_is_dropped() {
    let schema = crate::common::schema();
    let options = PostgresStore::options().with_schema(&schema);
    let store = open(options.clone()).await;
    let key = key("dropped");
    let first = write(&key, Revision::ABSENT, &["a"]);
    let second = write(&key, first.result(), &["b"]);
    let slots = [store.reserve().await.unwrap(), store.reserve().await.unwrap()];
    let tickets: Vec<_> = slots
        .into_iter()
        .zip([first, second])
        .map(|(slot, write)| store.append(slot, vec![write]))
        .collect();
    drop(store);
    for ticket in tickets {
        ticket.await.unwrap();
    }
    assert_eq!(texts(&open(options).await, &key).await, ["a", "b"]);
}
