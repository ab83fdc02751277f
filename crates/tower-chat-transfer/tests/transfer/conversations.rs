//! The conversations that the tests transfer.

use std::{
    io::Cursor,
    time::{Duration, SystemTime},
};

use serde_json::json;
use tower_chat::{
    ConversationKey, HistoryStore, Message, PersistenceMode, ToolCall, ToolResult,
    message::MessageId,
    request::Usage,
    run::RunId,
    store::{
        AddedSummary, DescriptionPatch, Directory, HistorySummary, InvocationQuery, Keep, Lease,
        LeaseEnd, Maintenance, ModelUsage, Revision, RunActivity, RunSummary, SequencePosition,
        ServiceIdChange, Summaries, ToolCallQueries, UsageSum,
        author::{Close, RecordedResult, Staged, ToolRecord, Write},
    },
    tool::ToolStatus,
    transfer::{ExportFile, Receipt, Selection, export, import},
};

/// Returns a time in the past, which is not a whole second.
pub(crate) fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123 + second * 1000)
}

pub(crate) fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

pub(crate) fn id(run: RunId, index: u32) -> MessageId {
    MessageId { run, index }
}

/// Returns the id of a run that was created at the given time.
pub(crate) fn run_at(second: u64) -> RunId {
    RunId::at(at(second))
}

pub(crate) fn usage(model: &str, calls: u64) -> ModelUsage {
    let sum = UsageSum::of_calls(calls, calls + 1)
        .with_tokens(Usage::new(100 * calls, 10 * calls))
        .with_cost_nanos(7 * calls);
    ModelUsage::new(Some(model.into()), sum)
}

pub(crate) fn activity(second: u64, usage: impl IntoIterator<Item = ModelUsage>) -> RunActivity {
    RunActivity::new(at(second)).with_mode(PersistenceMode::PerServiceCall).with_usage(usage)
}

/// Appends a write at the conversation's revision.
pub(crate) async fn append(store: &dyn HistoryStore, write: Write) -> Revision {
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap()
}

pub(crate) async fn revision(store: &dyn HistoryStore, key: &ConversationKey) -> Revision {
    store.head(key).await.unwrap().revision
}

pub(crate) async fn add_run(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    second: u64,
    texts: &[&str],
) -> RunId {
    let run = run_at(second);
    let messages = texts.iter().map(|text| Message::user(*text).into());
    let write = Write::new(key.clone(), id(run, 0), revision(store, key).await, messages)
        .with_activity(activity(second, [usage("gpt-5", 1)]));
    append(store, write).await;
    run
}

/// Writes a conversation with a description, a service id, and three runs with calls that succeed,
/// fail, wait for approval, or have a result in no message.
pub(crate) async fn fill(store: &dyn HistoryStore, key: &ConversationKey) {
    add_run(store, key, 1, &["Good day.", "Quotes \" and \u{1F9E5} and \\u0000 and \u{2028}."])
        .await;
    let run = run_at(20);
    let expected = revision(store, key).await;
    let asks = Message::tool_calls([
        ToolCall::new("call_1", "weather", r#"{"city": "Paris", "n": 1.10}"#),
        ToolCall::new("call_1", "weather", r#"{"city": "Rome"}"#),
        ToolCall::new("call_3", "pay", "not json"),
        ToolCall::new("call_4", "book", "{}"),
    ]);
    let mut metadata = Message::user("With metadata.");
    metadata.metadata =
        json!({"big": 12345678901234567890_u64, "π": 3.25}).as_object().unwrap().clone();
    metadata.author = Some("bob".to_owned());
    metadata.added_at = Some(at(20));
    let rows = [0, 1, 2, 3].map(|index| {
        let position = SequencePosition { sequence: expected.sequence + 2, index };
        let names =
            [("call_1", "weather"), ("call_1", "weather"), ("call_3", "pay"), ("call_4", "book")];
        let (call, name) = names[index as usize];
        ToolRecord::pending(position, 0, call, name)
    });
    let first = Write::new(key.clone(), id(run, 0), expected, [metadata.into(), asks.into()])
        .with_activity(activity(20, [usage("gpt-5", 1), usage("claude", 2)]))
        .with_tools(rows.to_vec());
    append(store, first).await;

    let expected = revision(store, key).await;
    let results = [ToolResult::new("call_1", "Rain."), ToolResult::new("call_1", "Sun.")];
    let mut rows = rows;
    for (index, row) in (0..).zip(rows.iter_mut()).take(2) {
        let position = SequencePosition { sequence: expected.sequence + 1, index };
        row.result = RecordedResult::InMessage(position);
        row.status = ToolStatus::Ok;
        row.started_at = Some(at(21));
        row.finished_at = Some(at(22));
    }
    rows[2].result = RecordedResult::Apart(Box::new(ToolResult::error("call_3", "Declined.")));
    rows[2].status = ToolStatus::Error;
    rows[2].error = Some("the bank declined".to_owned());
    rows[3].status = ToolStatus::Interrupted;
    let answers =
        [Message::tool_results(results).into(), Message::assistant("Take a coat.").into()];
    let second = Write::new(key.clone(), id(run, 2), expected, answers)
        .with_activity(activity(25, [usage("gpt-5", 3)]))
        .with_tools(rows.to_vec());
    append(store, second).await;

    let last = add_run(store, key, 40, &["One more."]).await;
    let write = Write::new(key.clone(), id(last, 1), revision(store, key).await, [])
        .with_activity(activity(41, []))
        .with_service_id(ServiceIdChange::Set("resp_1".into()));
    append(store, write).await;
    let topic = json!({"topic": {"a": [1, 2.50]}}).as_object().unwrap().clone();
    let patch = DescriptionPatch::new().with_title("Coats").with_metadata(topic);
    store.change_description(key, &patch).await.unwrap();
    add_summary(store, key, 2, "Greetings.").await;
    add_summary(store, key, 6, "Greetings, \u{1F9E5} and \0.").await;
}

/// Adds a summary of the messages up to the sequence number `covers_to`.
pub(crate) async fn add_summary(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    covers_to: u64,
    text: &str,
) -> HistorySummary {
    let history = store.load(key).await.unwrap();
    let last = history.message(covers_to).unwrap().id.unwrap();
    let summary = HistorySummary::new(covers_to, last, text)
        .with_made_by(Some("gpt-5-mini".into()))
        .with_time(at(50 + covers_to))
        .with_usage(usage("gpt-5-mini", covers_to).sum);
    let added = store.add_summary(key, &summary, history.head.rewrites).await.unwrap();
    assert_eq!(added, AddedSummary::Stored);
    summary
}

/// Stages a run and discards it, so that only the usage of the run remains.
pub(crate) async fn discard_run(store: &dyn HistoryStore, key: &ConversationKey, second: u64) {
    let run = run_at(second);
    let visible = revision(store, key).await.sequence;
    let opens = Write::new(
        key.clone(),
        id(run, 0),
        revision(store, key).await,
        [Message::user(format!("discarded at {second}")).into()],
    )
    .with_activity(activity(second, [usage("gpt-5", 9)]))
    .staged(staged(store, second, None))
    .beginning_attempt();
    let expected = append(store, opens).await;
    let close = Write::new(key.clone(), id(run, 1), expected, [])
        .with_activity(activity(second + 1, []))
        .staged(staged(store, second, Some(Close::Discard { visible })));
    append(store, close).await;
}

pub(crate) fn staged(store: &dyn HistoryStore, second: u64, close: Option<Close>) -> Staged {
    let holder = store.handle().holder();
    let lease = Lease { attempt: 1, holder, renewed_at: at(second), until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}

/// Writes three runs, prunes the first two, and adds a discarded run.
pub(crate) async fn fill_pruned(store: &dyn HistoryStore, key: &ConversationKey) {
    for (second, text) in [(1, "first, pruned"), (5, "second, pruned"), (9, "third, not pruned")] {
        add_run(store, key, second, &[text]).await;
    }
    store.prune(key, Keep::Messages(1)).await.unwrap();
    discard_run(store, key, 30).await;
    add_run(store, key, 50, &["after the discarded run"]).await;
}

pub(crate) async fn all_runs(store: &dyn HistoryStore, key: &ConversationKey) -> Vec<RunSummary> {
    store.runs(key, None, 10_000).await.unwrap()
}

pub(crate) async fn export_alice(store: &dyn HistoryStore) -> Vec<u8> {
    let mut file = Vec::new();
    let alice = Selection::scope("alice");
    export(store, &alice, ExportFile::new(&mut file), &mut |_| Ok(())).await.unwrap();
    file
}

pub(crate) async fn import_file(store: &dyn HistoryStore, file: &[u8]) -> Receipt {
    import(store, Cursor::new(file), &Selection::everything(), &mut |_| Ok(())).await.unwrap()
}

/// Returns all lines of a file except the last line, `complete`.
pub(crate) fn lines(file: &[u8]) -> Vec<&str> {
    let text = std::str::from_utf8(file).unwrap();
    text.lines().filter(|line| !line.starts_with(r#"{"complete""#)).collect()
}

/// Checks that both stores have the same visible data of a conversation.
pub(crate) async fn assert_same(
    left: &dyn HistoryStore,
    right: &dyn HistoryStore,
    key: &ConversationKey,
) {
    let (was, is) = (left.load(key).await.unwrap(), right.load(key).await.unwrap());
    assert_eq!(is.messages, was.messages);
    assert_eq!(is.head.service_id, was.head.service_id);
    assert_eq!(is.head.summary, was.head.summary);
    let of = async |store: &dyn HistoryStore| store.history_summaries(key).await.unwrap();
    assert_eq!(of(right).await, of(left).await);
    assert_eq!(all_runs(right, key).await, all_runs(left, key).await);
    let query = InvocationQuery::of(key);
    let (was, is) =
        (left.invocations(&query).await.unwrap(), right.invocations(&query).await.unwrap());
    assert_eq!(is, was);
    let (was, mut is) =
        (left.summary(key).await.unwrap().unwrap(), right.summary(key).await.unwrap().unwrap());
    is.description_version = was.description_version;
    assert_eq!(is, was);
}
