//! Tests of connections that the server closes, of lost replies, and of servers that do not answer.

use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::common::{
    address, append, ask, key, open, options, proxy::Proxy, raw, start, texts, write,
};
use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, MessageId, Part, Role, RunId, ToolCall, ToolStatus,
    store::{
        Directory, HistoryStore, Keep, Maintenance, Revision, SequencePosition, ServiceIdChange,
        StoreError,
        author::{Claim, ToolRecord, Write},
    },
};
use tower_chat_redis::RedisStore;

/// Opens a store with one connection, which goes through a proxy. The store has already stored a
/// write.
async fn through_a_proxy() -> (Proxy, RedisStore) {
    let (proxy, address) = Proxy::start(&address()).await;
    let store = options().with_max_connections(1).connect(&address).await.unwrap();
    append(&store, write(&key("first"), Revision::ABSENT, &["x"])).await.unwrap();
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_is_one_command() {
    let (proxy, store) = through_a_proxy().await;
    let key = key("one command");
    let mut revision = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
    let (before, begun) = (proxy.asked(), Instant::now());
    // The store also reads the mark that records whether it contains sealed data: before each write
    // that creates a conversation, and whenever the cached mark is older than a second.
    let asked_for = |commands: usize, of_new_conversations: usize| {
        let checks = proxy.asked() - before - commands;
        let max = of_new_conversations + usize::try_from(begun.elapsed().as_secs()).unwrap();
        let wanted = of_new_conversations..=max;
        assert!(wanted.contains(&checks), "{checks} checks beside {commands} commands");
    };
    for texts in [&["b"][..], &["c", "d", "e"]] {
        revision = append(&store, write(&key, revision, texts)).await.unwrap();
    }
    asked_for(2, 0);
    // A write that is a conflict is also one command.
    let late = Revision { sequence: 1, ..revision };
    append(&store, write(&key, late, &["x"])).await.unwrap_err();
    asked_for(3, 0);
    assert_eq!(texts(&store, &key).await, ["a", "b", "c", "d", "e"]);
    // The store loads a short conversation with one command.
    asked_for(4, 0);
    // The first write of a conversation also adds the conversation to the list of its scope.
    append(&store, write(&crate::common::key("another"), Revision::ABSENT, &["a"])).await.unwrap();
    asked_for(6, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_was_lost_is_stored_once() {
    let (proxy, store) = through_a_proxy().await;
    let key = key("answer lost");
    let first = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
    proxy.lose_the_next_answer();
    let second = write(&key, first, &["b", "c"]);
    let revision = append(&store, second.clone()).await.unwrap();
    assert_eq!((revision, proxy.lost()), (second.result(), 1));
    assert_eq!(texts(&store, &key).await, ["a", "b", "c"]);

    let service_id = ServiceIdChange::Set("conv_1".into());
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
    assert_eq!(store.list("scope", None, 10).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_whose_answer_was_lost_is_executed_once_and_returns_its_counts() {
    let (proxy, store) = through_a_proxy().await;
    let three_runs = async |key: &ConversationKey| {
        let mut at = Revision::ABSENT;
        for text in ["a", "b", "c"] {
            at = append(&store, write(key, at, &[text])).await.unwrap();
        }
    };
    // The first prune makes the server cache the scripts.
    three_runs(&key("first pruned")).await;
    store.prune(&key("first pruned"), Keep::Messages(1)).await.unwrap();
    let key = key("pruned");
    three_runs(&key).await;
    // The first command of a prune reads the conversation, and the second one deletes the runs.
    proxy.lose_the_answer_after(1);
    let pruned = store.prune(&key, Keep::Messages(1)).await.unwrap();
    assert_eq!((pruned.messages, proxy.lost()), (2, 1));
    assert_eq!(texts(&store, &key).await, ["c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_answer_was_lost_is_sent_again() {
    let (proxy, store) = through_a_proxy().await;
    assert_eq!(texts(&store, &key("first")).await, ["x"]);
    proxy.lose_the_next_answer();
    assert_eq!(texts(&store, &key("first")).await, ["x"]);
    assert_eq!(proxy.lost(), 1);
}

/// tokio's clock can be paused only on a current-thread runtime.
#[tokio::test]
async fn a_write_on_a_silent_connection_is_sent_again_on_a_new_connection() {
    let options = options().with_max_connections(2);
    let (proxy, through) = Proxy::start(&address()).await;
    let store = options.clone().connect(&through).await.unwrap();
    let key = key("silence");
    let mut at = Revision::ABSENT;
    for _ in 0..2 {
        at = append(&store, write(&key, at, &["a"])).await.unwrap();
    }
    proxy.fall_silent();
    let (written, ()) = tokio::join!(append(&store, write(&key, at, &["b"])), async {
        proxy.swallowed().await;
        // The response timeout and the retry timeout pass.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(36)).await;
        tokio::time::resume();
    });
    written.unwrap();
    assert_eq!(texts(&open(options).await, &key).await, ["a", "a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let server = start(&[]);
    let store = options().connect(&server.address(0)).await.unwrap();
    let mut connection = raw(&server.address(0)).await;
    let key = key("forgotten");
    let mut revision = Revision::ABSENT;
    for number in 0..5 {
        ask::<()>(&mut connection, &["SCRIPT", "FLUSH"]).await.unwrap();
        revision = append(&store, write(&key, revision, &[&number.to_string()])).await.unwrap();
        ask::<()>(&mut connection, &["SCRIPT", "FLUSH"]).await.unwrap();
        assert_eq!(texts(&store, &key).await.len(), number + 1);
    }
    ask::<()>(&mut connection, &["SCRIPT", "FLUSH"]).await.unwrap();
    assert!(store.delete(&key).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_has_closed_are_opened_again() {
    let server = start(&[]);
    let store = options().connect(&server.address(0)).await.unwrap();
    let mut connection = raw(&server.address(0)).await;
    let key = key("closed");
    let mut revision = Revision::ABSENT;
    for number in 0..10 {
        ask::<u64>(&mut connection, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await
            .unwrap();
        revision = append(&store, write(&key, revision, &[&number.to_string()])).await.unwrap();
    }
    assert_eq!(texts(&store, &key).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_writes_are_stored_after_the_last_handle_is_dropped() {
    let options = options();
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
