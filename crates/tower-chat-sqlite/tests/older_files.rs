//! Files of every released version open, with everything that is in them.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use common::{append, texts};
use tempfile::TempDir;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolCall, ToolResult, ToolStatus,
    store::{
        CallPlace, HistoryStore, InvocationQuery, RecordedResult, Revision, ServiceIdChange,
        ToolRecord, Write,
    },
};
use tower_chat_sqlite::{OpenError, SqliteStore};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    fs::copy(fixture(name), &path).unwrap();
    (folder, path)
}

fn support() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

fn run() -> RunId {
    RunId::from_bytes([9; 16])
}

/// The messages that are in every fixture.
async fn assert_has_the_messages(store: &SqliteStore) {
    assert_eq!(store.scopes().await.unwrap(), ["", "alice"]);
    let history = store.load(&support()).await.unwrap();
    assert_eq!(history.head.revision, Revision { incarnation: 0x0909_0909_0909_0909, sequence: 2 });
    assert_eq!(history.head.service_id.as_deref(), Some("resp_1"));
    let ids: Vec<_> =
        history.messages.iter().map(|message| message.id.unwrap().to_string()).collect();
    let run = "09090909-0909-0909-0909-090909090909";
    assert_eq!(ids, [format!("{run}.0"), format!("{run}.1")]);
    assert_eq!(texts(store, &support()).await, ["Where is my order?", ""]);
    let call = history.messages.last().unwrap().calls().next().unwrap().clone();
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("orders", "{\"user\": \"al"));
    assert_eq!(texts(store, &ConversationKey::new("", "")).await, ["hi"]);
}

/// A row of the call that is in every fixture.
fn outcome() -> ToolRecord {
    let call = CallPlace { sequence: 2, index: 0 };
    let mut record = ToolRecord::pending(call, 0, "call_1", "orders");
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(1_750_000_000_123);
    record.status = ToolStatus::Error;
    record.result = RecordedResult::Apart(ToolResult::error("call_1", "cut off").into());
    record.error = Some("unexpected end of text".to_owned());
    record.started_at = Some(started);
    record.finished_at = Some(started + Duration::from_millis(45));
    record
}

async fn assert_has_the_outcome(store: &SqliteStore) {
    let invocations = store.invocations(&InvocationQuery::of(&support())).await.unwrap();
    assert_eq!(invocations.unreadable, []);
    let [(key, found)] = &*invocations.found else { panic!("{invocations:?}") };
    let expected = outcome();
    assert_eq!((key, found.sequence, found.sequence_index), (&support(), 2, 0));
    assert_eq!(found.message, MessageId { run: run(), index: 1 });
    assert_eq!((found.call_id.as_str(), found.name.as_str()), ("call_1", "orders"));
    assert_eq!((found.round_index, found.status), (0, ToolStatus::Error));
    assert_eq!(found.arguments, "{\"user\": \"al");
    assert_eq!(found.result, Some(ToolResult::error("call_1", "cut off")));
    assert_eq!(found.error, expected.error);
    assert_eq!((found.started_at, found.finished_at), (expected.started_at, expected.finished_at));
}

#[tokio::test]
async fn a_file_of_version_1_loads_and_gains_the_record_of_tool_calls() {
    let (_folder, path) = copy("v1.db");
    let error = SqliteStore::options().read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 1, supported: 2, .. }), "{error:?}");
    for _ in 0..2 {
        let store = SqliteStore::open(&path).await.unwrap();
        assert_has_the_messages(&store).await;
        let invocations = store.invocations(&InvocationQuery::in_scope("alice")).await.unwrap();
        assert_eq!((invocations.found, invocations.unreadable), (vec![], vec![]));
        store.close().await.unwrap();
    }
    let store = SqliteStore::open(&path).await.unwrap();
    let at = store.head(&support()).await.unwrap().revision;
    let id = MessageId { run: RunId::new(), index: 0 };
    append(&store, vec![Write::new(support(), id, at, []).with_tools(vec![outcome()])])
        .await
        .unwrap();
    assert_has_the_messages(&store).await;
    assert_has_the_outcome(&store).await;
}

#[tokio::test]
async fn a_file_of_version_2_loads_with_its_record_of_tool_calls() {
    let (_folder, path) = copy("v2.db");
    for store in [
        SqliteStore::options().read_only(true).open(&path).await.unwrap(),
        SqliteStore::open(&path).await.unwrap(),
    ] {
        assert_has_the_messages(&store).await;
        assert_has_the_outcome(&store).await;
    }
}

/// Made `fixtures/v2.db`, once. A later schema gets a fixture of its own; this one stays.
#[tokio::test]
#[ignore = "makes a fixture"]
async fn make_the_fixture() {
    assert!(!fixture("v2.db").exists(), "it is there");
    let store = SqliteStore::open(fixture("v2.db")).await.unwrap();
    let id = MessageId { run: run(), index: 0 };
    let call = ToolCall::new("call_1", "orders", "{\"user\": \"al");
    let messages = [Message::user("Where is my order?"), Message::tool_calls([call])];
    let support = Write::new(support(), id, Revision::ABSENT, messages.map(Into::into))
        .with_service_id(ServiceIdChange::Set("resp_1".into()))
        .with_tools(vec![outcome()]);
    let unnamed = ConversationKey::new("", "");
    let unnamed = Write::new(unnamed, id, Revision::ABSENT, [Message::user("hi").into()]);
    append(&store, vec![support, unnamed]).await.unwrap();
    store.close().await.unwrap();
}
