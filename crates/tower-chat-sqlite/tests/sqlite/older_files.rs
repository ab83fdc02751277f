//! Tests that the store opens files of every schema version with all of their content.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::common::{append, texts};
use tempfile::TempDir;
use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, MessageId, Part, PersistenceMode, Role, RunId,
    ToolCall, ToolResult, ToolStatus, Usage,
    store::{
        ConversationQuery, ConversationState, Description, Directory, HistoryStore,
        InvocationQuery, Journal, Keep, Lease, LeaseEnd, Maintenance, ModelUsage, Revision,
        RunActivity, SequencePosition, ServiceIdChange, ToolCallQueries, UsageSum,
        author::{RecordedResult, Staged, ToolRecord, Write},
    },
};
use tower_chat_sqlite::{OpenError, SqliteStore};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub(crate) fn copy(name: &str) -> (TempDir, PathBuf) {
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

/// Checks that a store contains the messages that every fixture contains.
async fn assert_has_the_messages(store: &SqliteStore) {
    assert_eq!(store.scopes(None, 100).await.unwrap(), ["", "alice"]);
    let history = store.load(&support()).await.unwrap();
    let Revision { incarnation, sequence } = history.head.revision;
    let staged = history.head.open_run.as_ref().map_or(0, |open| sequence - open.visible);
    assert_eq!((incarnation, sequence - staged), (0x0909_0909_0909_0909, 2));
    assert_eq!(history.head.service_id.as_deref(), Some("resp_1"));
    let ids: Vec<_> =
        history.messages.iter().map(|message| message.id.unwrap().to_string()).collect();
    let run = "09090909-0909-0909-0909-090909090909";
    assert_eq!(ids, [format!("{run}.0"), format!("{run}.1")]);
    assert_eq!(texts(store, &support()).await, ["Where is my order?", ""]);
    let call = history.messages.last().unwrap().calls().next().unwrap().clone();
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("orders", "{\"user\": \"al"));
    assert_eq!(texts(store, &ConversationKey::new("", "")).await[0], "hi");
}

/// Returns the row of the record for the tool call that every fixture contains.
fn outcome() -> ToolRecord {
    let call = SequencePosition { sequence: 2, index: 0 };
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
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 1, supported: 7, .. }), "{error:?}");
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
async fn a_file_of_version_2_loads_with_its_record_of_tool_calls_and_takes_open_runs() {
    let (_folder, path) = copy("v2.db");
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 2, supported: 7, .. }), "{error:?}");
    for _ in 0..2 {
        let store = SqliteStore::open(&path).await.unwrap();
        assert_has_the_messages(&store).await;
        assert_has_the_outcome(&store).await;
        assert_eq!(store.open_runs("alice", None, 10).await.unwrap(), []);
        store.close().await.unwrap();
    }
    let store = SqliteStore::open(&path).await.unwrap();
    let at = store.head(&support()).await.unwrap().revision;
    append(&store, vec![staged(at)]).await.unwrap();
    assert_has_the_open_run(&store).await;
}

#[tokio::test]
async fn a_file_of_version_3_loads_with_its_open_run_and_can_be_pruned() {
    let (_folder, path) = copy("v3.db");
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 3, supported: 7, .. }), "{error:?}");
    for _ in 0..2 {
        let store = SqliteStore::open(&path).await.unwrap();
        assert_has_the_open_run_and_the_approval(&store).await;
        assert_eq!(store.head(&support()).await.unwrap().pruned, 0);
        store.close().await.unwrap();
    }
    let store = SqliteStore::open(&path).await.unwrap();
    prune_one_message(&store).await;
    assert_has_a_pruned_conversation(&store).await;
}

#[tokio::test]
async fn a_file_of_version_4_loads_with_its_pruned_conversation_and_gets_a_directory() {
    let (_folder, path) = copy("v4.db");
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 4, supported: 7, .. }), "{error:?}");
    for _ in 0..2 {
        let store = SqliteStore::open(&path).await.unwrap();
        assert_has_the_open_run_and_the_approval(&store).await;
        assert_has_a_pruned_conversation(&store).await;
        let support = store.summary(&support()).await.unwrap().unwrap();
        assert_eq!((support.messages, support.runs), (2, 2));
        assert_eq!((support.state, support.usage.tool_calls), (ConversationState::RunOpen, 2));
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_of_version_5_loads_with_its_directory_and_gets_checksums_with_new_messages() {
    let (_folder, path) = copy("v5.db");
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 5, supported: 7, .. }), "{error:?}");
    for _ in 0..2 {
        let store = SqliteStore::open(&path).await.unwrap();
        assert_has_the_directory(&store).await;
        store.close().await.unwrap();
    }
    let store = SqliteStore::open(&path).await.unwrap();
    let at = store.head(&described()).await.unwrap().revision;
    let id = MessageId { run: RunId::new(), index: 0 };
    append(&store, vec![Write::new(described(), id, at, [Message::user("later").into()])])
        .await
        .unwrap();
    assert_eq!(texts(&store, &described()).await, ["late", "later"]);
    store.close().await.unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let counts = "SELECT count(*), count(checksum) FROM messages";
    let counts = connection.query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(counts, Ok((9, 1)));
}

#[tokio::test]
async fn a_file_of_version_6_loads_with_its_checksums() {
    let (_folder, path) = copy("v6.db");
    let read_only = SqliteStore::options().with_read_only(true);
    let error = read_only.open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 6, supported: 7, .. }), "{error:?}");
    let store = SqliteStore::open(&path).await.unwrap();
    assert_has_the_directory(&store).await;
    store.close().await.unwrap();
}

async fn assert_has_the_directory(store: &SqliteStore) {
    assert_has_the_open_run_and_the_approval(store).await;
    assert_has_a_pruned_conversation(store).await;
    let summary = store.summary(&described()).await.unwrap().unwrap();
    assert_eq!((summary.description, summary.description_version), (description(), 1));
    assert_eq!((summary.messages, summary.runs, summary.usage), (1, 1, usage().sum));
    assert_eq!([summary.created_at, summary.last_active_at], [then(); 2]);
    assert_eq!(summary.last_mode, Some(PersistenceMode::PerServiceCall));
    let runs = store.runs(&described(), None, 10).await.unwrap();
    assert_eq!(runs.iter().map(|run| &run.usage[..]).collect::<Vec<_>>(), [[usage()]]);
}

/// Returns the key of the conversation with a description that the fixtures contain from version 5
/// on.
fn described() -> ConversationKey {
    ConversationKey::new("alice", "described")
}

fn description() -> Description {
    let metadata = [("topic".to_owned(), "orders".into())].into_iter().collect();
    Description::new().with_title("Late orders").unwrap().with_metadata(metadata).unwrap()
}

fn then() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_760_000_000_789)
}

fn usage() -> ModelUsage {
    let sum = UsageSum::of_calls(1, 2).with_tokens(Usage::new(300, 40)).with_cost_nanos(5);
    ModelUsage::new(Some("a model".into()), sum)
}

/// A migration takes the times in the directory from the ids of the runs.
#[tokio::test]
async fn the_directory_of_an_older_file_has_the_times_of_its_runs() {
    let (_folder, path) = copy("v4.db");
    let runs: Vec<RunId> = (1..=4_u8).map(run_made_at).collect();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let insert = "INSERT INTO conversations (id, scope, conversation, incarnation)
        VALUES (?1, 'old', ?2, 7)";
    connection.execute(insert, rusqlite::params![77, "long"]).unwrap();
    connection.execute(insert, rusqlite::params![78, "never recorded"]).unwrap();
    let message = tower_chat_core::format::encode(&Message::user("from long ago"));
    // The first run continues after the second one, and the third run is open.
    for (sequence, run) in (1_i64..).zip([0, 0, 1, 0, 2, 2]) {
        let row = rusqlite::params![
            (77_i64 << 32) + sequence,
            RunId::to_bytes(runs[run]),
            sequence,
            message
        ];
        connection.execute("INSERT INTO messages VALUES (?1, ?2, ?3, ?4)", row).unwrap();
    }
    let open = "INSERT INTO open_runs
        VALUES (77, ?1, 1, 1, 1760000000000, 1760000000000, NULL, 4, 0, NULL, NULL)";
    connection.execute(open, [runs[2].to_bytes()]).unwrap();
    drop(connection);
    let store = SqliteStore::open(&path).await.unwrap();
    let key = ConversationKey::new("old", "long");
    let summary = store.summary(&key).await.unwrap().unwrap();
    assert_eq!((summary.messages, summary.runs), (4, 4));
    assert_eq!([summary.created_at, summary.last_active_at], [1, 3].map(made_at));
    assert_eq!((summary.last_mode, summary.state), (None, ConversationState::RunOpen));
    let listed = store.runs(&key, None, 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|run| (run.run, run.began_at, run.is_open)).collect();
    assert_eq!(
        listed,
        [(runs[2], made_at(3), true), (runs[1], made_at(2), false), (runs[0], made_at(1), false)]
    );
    let query = ConversationQuery::in_scope("old");
    let page = store.conversations(&query).await.unwrap().conversations;
    let ids: Vec<_> = page.iter().map(|summary| summary.key.id()).collect();
    assert_eq!(
        ids,
        ["never recorded", "long"],
        "the first conversation has the time of the migration"
    );
    store.delete(&key).await.unwrap();
    assert_eq!(store.runs(&key, None, 10).await.unwrap(), []);
}

fn made_at(second: u8) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + u64::from(second))
}

fn run_made_at(second: u8) -> RunId {
    let milliseconds = (1_700_000_000 + u64::from(second)) * 1000;
    let mut bytes = RunId::new().to_bytes();
    bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
    RunId::from_bytes(bytes)
}

async fn assert_has_the_open_run_and_the_approval(store: &SqliteStore) {
    assert_has_the_messages(store).await;
    assert_has_the_outcome(store).await;
    assert_has_the_open_run(store).await;
    let head = store.head(&ConversationKey::new("", "")).await.unwrap();
    assert_eq!(head.pending_approvals, [[approval_request()]]);
}

fn pruned() -> ConversationKey {
    ConversationKey::new("alice", "years old")
}

/// Writes two messages to a conversation and prunes the first one. The fixtures from version 4 on
/// contain this pruned conversation.
async fn prune_one_message(store: &SqliteStore) {
    let mut at = Revision::ABSENT;
    for (byte, text) in [(5, "old"), (6, "new")] {
        let id = MessageId { run: RunId::from_bytes([byte; 16]), index: 0 };
        let write = Write::new(pruned(), id, at, [Message::user(text).into()]);
        at = append(store, vec![write]).await.unwrap();
    }
    assert_eq!(store.prune(&pruned(), Keep::Messages(1)).await.unwrap().messages, 1);
}

async fn assert_has_a_pruned_conversation(store: &SqliteStore) {
    let history = store.load(&pruned()).await.unwrap();
    assert_eq!((history.head.pruned, history.head.revision.sequence), (1, 2));
    assert_eq!(texts(store, &pruned()).await, ["new"]);
}

/// Returns a write of the run that is open in the fixtures from version 3 on.
fn staged(at: Revision) -> Write {
    let id = MessageId { run: RunId::from_bytes([7; 16]), index: 0 };
    let renewed_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_760_000_000_456);
    let until = LeaseEnd::At(renewed_at + Duration::from_secs(30));
    let lease = Lease { attempt: 2, holder: u64::MAX - 1, renewed_at, until };
    let call = ToolCall::new("call_2", "orders", "{}");
    let messages = [Message::user("And now?"), Message::tool_calls([call])];
    let position = SequencePosition { sequence: at.sequence + 2, index: 0 };
    Write::new(support(), id, at, messages.map(Into::into))
        .with_tools(vec![ToolRecord::pending(position, 0, "call_2", "orders")])
        .staged(Staged {
            lease,
            close: None,
            service_id: Some(ServiceIdChange::Clear),
            partial_text: Some("Let me".into()),
        })
}

async fn assert_has_the_open_run(store: &SqliteStore) {
    let Some(content) = store.open_run(&support()).await.unwrap() else { panic!("no open run") };
    let at = Revision { incarnation: content.head.revision.incarnation, sequence: 2 };
    let write = staged(at);
    let expected = write.as_staged().unwrap();
    let open = &content.open;
    assert_eq!((open.run, open.lease, open.visible), (write.run(), expected.lease, 2));
    assert_eq!(open.opened_at, expected.lease.renewed_at);
    assert_eq!(open.service_id, expected.service_id);
    assert_eq!(open.partial_text, expected.partial_text);
    assert_eq!(content.head.revision, write.result());
    assert_eq!(content.messages, write.messages());
    assert_eq!(content.tools, write.tools());
    let listed = store.open_runs("alice", None, 10).await.unwrap();
    assert_eq!(listed, [support()]);
    assert_eq!(store.head(&support()).await.unwrap().open_run, Some(content.open));
}

fn approval_request() -> ApprovalRequest {
    ApprovalRequest::new("approval_1", ToolCall::new("call_3", "refund", "{}"), true)
}

/// Creates `fixtures/v7.db`. A later schema version gets a new fixture. Existing fixtures must not
/// change.
#[tokio::test]
#[ignore = "makes a fixture"]
async fn make_the_fixture() {
    assert!(!fixture("v7.db").exists(), "it is there");
    let store = SqliteStore::open(fixture("v7.db")).await.unwrap();
    let id = MessageId { run: run(), index: 0 };
    let call = ToolCall::new("call_1", "orders", "{\"user\": \"al");
    let messages = [Message::user("Where is my order?"), Message::tool_calls([call])];
    let support = Write::new(support(), id, Revision::ABSENT, messages.map(Into::into))
        .with_service_id(ServiceIdChange::Set("resp_1".into()))
        .with_tools(vec![outcome()]);
    let staged = staged(support.result());
    let unnamed = ConversationKey::new("", "");
    let request = Message::new(Role::Assistant, vec![Part::ApprovalRequest(approval_request())]);
    let mut row =
        ToolRecord::pending(SequencePosition { sequence: 2, index: 0 }, 0, "call_3", "refund");
    row.status = ToolStatus::PendingApproval;
    let unnamed =
        Write::new(unnamed, id, Revision::ABSENT, [Message::user("hi").into(), request.into()])
            .with_tools(vec![row]);
    append(&store, vec![support, staged, unnamed]).await.unwrap();
    prune_one_message(&store).await;
    let activity =
        RunActivity::new(then()).with_mode(PersistenceMode::PerServiceCall).with_usage([usage()]);
    let write = Write::new(described(), id, Revision::ABSENT, [Message::user("late").into()]);
    append(&store, vec![write.with_activity(activity)]).await.unwrap();
    store.set_description(&described(), &description(), 0).await.unwrap();
    store.close().await.unwrap();
}
