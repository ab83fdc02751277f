//! What the promises are tested with.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolCall, ToolInvocation, ToolStatus,
    store::{
        AppendError, CallPlace, Conflict, InvocationQuery, RecordedResult, Revision, StoreError,
        ToolRecord, Write,
    },
};

use super::Store;

pub(super) fn key(id: &str) -> ConversationKey {
    ConversationKey::new("scope", id)
}

/// A write of a run of its own, with these texts as user messages.
pub(super) fn write(key: &ConversationKey, expected: Revision, texts: &[&str]) -> Write {
    let messages = texts.iter().map(|text| Message::user(*text));
    write_messages(key, expected, messages)
}

pub(super) fn write_messages(
    key: &ConversationKey,
    expected: Revision,
    messages: impl IntoIterator<Item = Message>,
) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, messages.into_iter().map(Arc::new))
}

/// Submits writes and waits for them.
pub(super) async fn submit(store: &Store, writes: Vec<Write>) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.expect("a slot");
    store.append(slot, writes).await
}

/// Stores a write that must succeed, and gives the revision after it.
pub(super) async fn stored(store: &Store, write: Write) -> Revision {
    let expected = write.result();
    let revision = submit(store, vec![write]).await.expect("the write is stored");
    assert_eq!(revision, expected, "the ticket tells the revision after the write");
    revision
}

/// Stores a write that must be refused as a conflict.
pub(super) async fn refused(store: &Store, write: Write) -> Conflict {
    let error = submit(store, vec![write.clone()]).await.expect_err("a conflict");
    assert_eq!(error.completed, 0);
    let conflict = conflict(error);
    assert_eq!(&conflict.key, write.key());
    assert_eq!(conflict.expected, write.expected());
    conflict
}

pub(super) fn conflict(error: AppendError) -> Conflict {
    match error.source {
        StoreError::Conflict(conflict) => *conflict,
        other => panic!("expected a conflict, not {other:?}"),
    }
}

/// The texts of a conversation.
pub(super) async fn texts(store: &Store, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.expect("a history");
    assert_eq!(history.messages.len() as u64, history.head.revision.sequence);
    history.messages.iter().map(|message| message.text()).collect()
}

/// The revision of a conversation; head and load must agree on it.
pub(super) async fn revision(store: &Store, key: &ConversationKey) -> Revision {
    let head = store.head(key).await.expect("a head");
    assert_eq!(store.load(key).await.expect("a history").head, head);
    head.revision
}

/// A message that asks for these tools, each with arguments that say which call it is.
pub(super) fn asking(tools: &[&str]) -> Message {
    let call = |(index, tool): (usize, &&str)| {
        ToolCall::new(format!("id {index}"), *tool, format!("{{\"cut off {index}"))
    };
    Message::tool_calls(tools.iter().enumerate().map(call))
}

pub(super) fn place(sequence: u64, index: u32) -> CallPlace {
    CallPlace { sequence, index }
}

/// A row of a call that nothing has answered.
pub(super) fn pending(sequence: u64, index: u32, tool: &str) -> ToolRecord {
    ToolRecord::pending(place(sequence, index), 0, format!("id {index}"), tool)
}

/// The same call with an outcome.
pub(super) fn with_outcome(
    mut row: ToolRecord,
    status: ToolStatus,
    result: RecordedResult,
) -> ToolRecord {
    row.status = status;
    row.result = result;
    row
}

/// The same call, from one millisecond since 1970 to another.
pub(super) fn with_times(mut row: ToolRecord, started: u64, finished: u64) -> ToolRecord {
    row.started_at = Some(at(started));
    row.finished_at = Some(at(finished));
    row
}

pub(super) fn at(milliseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
}

/// A write of rows alone.
pub(super) fn write_rows(
    key: &ConversationKey,
    expected: Revision,
    rows: Vec<ToolRecord>,
) -> Write {
    write_messages(key, expected, []).with_tools(rows)
}

/// What a query finds; all of it can be read.
pub(super) async fn invocations(
    store: &Store,
    query: &InvocationQuery,
) -> Vec<(ConversationKey, ToolInvocation)> {
    let invocations = store.invocations(query).await.expect("an answer");
    assert_eq!(invocations.unreadable, []);
    invocations.found
}

/// The calls recorded for a conversation.
pub(super) async fn recorded(store: &Store, key: &ConversationKey) -> Vec<ToolInvocation> {
    let found = invocations(store, &InvocationQuery::of(key)).await;
    assert!(found.iter().all(|(found, _)| found == key));
    found.into_iter().map(|(_, invocation)| invocation).collect()
}
