//! Functions that the tests of the contract share. The record has one row for each tool call.
//! Staged messages belong to an open run: they are stored, but readers do not see them until the
//! run is committed.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolCall, ToolInvocation, ToolStatus,
    store::{
        CallSelection, Capability, Conflict, InvocationQuery, Journal, Lease, LeaseEnd, OpenRun,
        Revision, SequencePosition, ServiceIdChange, StoreError, ToolCallQueries,
        author::{AppendError, Close, OpenRunContent, RecordedResult, Staged, ToolRecord, Write},
    },
};

use super::Store;

pub(super) fn key(id: &str) -> ConversationKey {
    ConversationKey::new("scope", id)
}

/// Returns a write of a new run whose messages are user messages with these texts.
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

/// Submits writes, and waits until they are stored or refused.
pub(super) async fn submit(store: &Store, writes: Vec<Write>) -> Result<Revision, AppendError> {
    let slot = store.reserve().await.expect("a slot is reserved");
    store.append(slot, writes).await
}

/// Stores a write, which must succeed, and returns the new revision of the conversation.
pub(super) async fn stored(store: &Store, write: Write) -> Revision {
    let expected = write.result();
    let revision = submit(store, vec![write]).await.expect("the write is stored");
    assert_eq!(revision, expected, "`append` returns the revision after the write");
    revision
}

/// Submits a write, which must be refused, and returns the conflict.
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

pub(super) async fn texts(store: &Store, key: &ConversationKey) -> Vec<String> {
    let history = store.load(key).await.expect("the history is loaded");
    let Revision { sequence, .. } = history.head.revision;
    let seen = history.head.open_run.as_ref().map_or(sequence, |open| open.visible);
    assert_eq!(history.head.pruned + history.messages.len() as u64, seen);
    history.messages.iter().map(|message| message.text()).collect()
}

/// Returns the revision of a conversation. Checks that `head` and `load` return the same head,
/// except for the pending approvals, which `load` may omit.
pub(super) async fn revision(store: &Store, key: &ConversationKey) -> Revision {
    let head = store.head(key).await.expect("the head is read");
    let loaded = store.load(key).await.expect("the history is loaded").head;
    assert_eq!(loaded, head.clone().with_pending_approvals(loaded.pending_approvals.clone()));
    head.revision
}

/// Returns a message with a call of each of these tools. The id and the arguments of a call contain
/// its index.
pub(super) fn asking(tools: &[&str]) -> Message {
    let call = |(index, tool): (usize, &&str)| {
        ToolCall::new(format!("id {index}"), *tool, format!("{{\"cut off {index}"))
    };
    Message::tool_calls(tools.iter().enumerate().map(call))
}

pub(super) fn position(sequence: u64, index: u32) -> SequencePosition {
    SequencePosition { sequence, index }
}

/// Returns the row in the record for a call without a result.
pub(super) fn pending(sequence: u64, index: u32, tool: &str) -> ToolRecord {
    ToolRecord::pending(position(sequence, index), 0, format!("id {index}"), tool)
}

pub(super) fn with_outcome(
    mut row: ToolRecord,
    status: ToolStatus,
    result: RecordedResult,
) -> ToolRecord {
    row.status = status;
    row.result = result;
    row
}

/// Sets the start time and the end time of a row, in milliseconds since 1970.
pub(super) fn with_times(mut row: ToolRecord, started: u64, finished: u64) -> ToolRecord {
    row.started_at = Some(at(started));
    row.finished_at = Some(at(finished));
    row
}

/// Converts a number of milliseconds since 1970 to a time.
pub(super) fn at(milliseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
}

/// Returns a write that contains rows of the record and no messages.
pub(super) fn write_rows(
    key: &ConversationKey,
    expected: Revision,
    rows: Vec<ToolRecord>,
) -> Write {
    write_messages(key, expected, []).with_tools(rows)
}

/// Returns the calls that a query finds. Checks that all of them are readable.
pub(super) async fn invocations(
    store: &Store,
    query: &InvocationQuery,
) -> Vec<(ConversationKey, ToolInvocation)> {
    let invocations = store.invocations(query).await.expect("the record is queried");
    assert_eq!(invocations.unreadable, []);
    invocations.found
}

/// Returns all calls in the record of a conversation.
pub(super) async fn recorded(store: &Store, key: &ConversationKey) -> Vec<ToolInvocation> {
    let calls = store.calls(key, &CallSelection::All).await.expect("the calls are read");
    assert_eq!(calls.unreadable, []);
    assert!(calls.found.iter().all(|(found, _)| found == key));
    calls.found.into_iter().map(|(_, invocation)| invocation).collect()
}

/// Checks the list of conversations in a scope. Does nothing if the store has no directory.
pub(super) async fn assert_listed(store: &Store, scope: &str, expected: &[ConversationKey]) {
    if let Some(directory) = store.directory() {
        assert_eq!(directory.list(scope, None, 1_000).await.expect("the list is read"), expected);
    }
}

/// Checks the number of calls of each tool. Does nothing if the store lacks these queries.
pub(super) async fn assert_counted(store: &Store, query: &InvocationQuery, expected: &[u64]) {
    if let Some(queries) = store.tool_calls() {
        let totals = queries.tool_totals(query).await.expect("the totals are read");
        assert_eq!(totals.iter().map(|tool| tool.calls).collect::<Vec<_>>(), expected);
    }
}

/// Returns whether the store lacks one of these capabilities. Tests then skip the steps that need
/// it. [`check_capabilities`](super::check_capabilities) fails for a capability that should exist.
pub(super) fn lacks(store: &Store, needed: &[Capability]) -> bool {
    needed.iter().any(|capability| !has(store, *capability))
}

pub(super) fn has(store: &Store, capability: Capability) -> bool {
    match capability {
        Capability::Journal => store.journal().is_some(),
        Capability::Directory => store.directory().is_some(),
        Capability::ToolCallQueries => store.tool_calls().is_some(),
        Capability::Maintenance => store.maintenance().is_some(),
        Capability::Summaries => store.summaries().is_some(),
    }
}

/// A run that stages its writes.
pub(super) struct StagedRun {
    pub(super) key: ConversationKey,
    pub(super) run: RunId,
    /// The revision of the conversation after the last write of the run.
    pub(super) at: Revision,
    /// The index of the next message in the run.
    next: u32,
}

impl StagedRun {
    pub(super) fn new(key: &ConversationKey, at: Revision) -> Self {
        Self { key: key.clone(), run: RunId::new(), at, next: 0 }
    }

    pub(super) fn write(
        &mut self,
        staged: Staged,
        messages: impl IntoIterator<Item = Message>,
    ) -> Write {
        let id = MessageId { run: self.run, index: self.next };
        let messages = messages.into_iter().map(Arc::new);
        let write = Write::new(self.key.clone(), id, self.at, messages).staged(staged);
        self.next += u32::try_from(write.messages().len()).expect("the number of messages fits");
        self.at = write.result();
        write
    }

    /// Returns the next write of the run, with one user message.
    pub(super) fn text(&mut self, staged: Staged, text: &str) -> Write {
        self.write(staged, [Message::user(text)])
    }
}

/// Returns the lease of an attempt (execution of a run). Each attempt has another holder.
pub(super) fn lease(attempt: u32) -> Lease {
    let renewed_at = at(1_750_000_000_123 + u64::from(attempt));
    let until = LeaseEnd::At(renewed_at + Duration::from_secs(30));
    Lease { attempt, holder: u64::MAX - u64::from(attempt), renewed_at, until }
}

/// Returns the properties of a staged write that neither commits nor discards the run.
pub(super) fn staging(attempt: u32) -> Staged {
    Staged { lease: lease(attempt), close: None, service_id: None, partial_text: None }
}

pub(super) fn commit(attempt: u32) -> Staged {
    Staged { close: Some(Close::Commit), ..staging(attempt) }
}

pub(super) fn discard(attempt: u32, visible: u64) -> Staged {
    Staged { close: Some(Close::Discard { visible }), ..staging(attempt) }
}

pub(super) fn set(id: &str) -> Option<ServiceIdChange> {
    Some(ServiceIdChange::Set(id.into()))
}

/// Submits a write that the store must accept, whether or not it was stored before.
pub(super) async fn acknowledged(store: &Store, write: &Write) {
    stored(store, write.clone()).await;
}

/// Returns the open run of a conversation. Checks that all methods return the same one.
pub(super) async fn open_run(store: &Store, key: &ConversationKey) -> Option<OpenRun> {
    let head = store.head(key).await.expect("the head is read");
    assert_eq!(store.load(key).await.expect("the history is loaded").head.open_run, head.open_run);
    let content = store.open_run(key).await.expect("the open run is read");
    if let Some(content) = &content {
        assert_eq!(content.head.revision, head.revision);
        let staged = content.messages.len() as u64;
        assert_eq!(content.open.visible + staged, head.revision.sequence);
    }
    assert_eq!(content.map(|content| content.open), head.open_run);
    let listed = store.open_runs(key.scope(), None, usize::MAX).await.expect("the list is read");
    assert_eq!(listed.contains(key), head.open_run.is_some());
    head.open_run
}

pub(super) async fn staged_content(store: &Store, key: &ConversationKey) -> OpenRunContent {
    store.open_run(key).await.expect("the open run is read").expect("a run is open")
}
