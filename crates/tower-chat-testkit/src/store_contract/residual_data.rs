//! The rule that deleted data must not remain in a store. Data is deleted with its conversation, by
//! a prune (a deletion of the oldest runs), or by the discard of an open run (a run that was never
//! committed).

use std::{fmt, future::Future, sync::Arc, time::SystemTime};

use futures_util::future::BoxFuture;
use tokio::runtime::Builder;
use tower_chat_core::{
    ConversationKey, Message, ToolResult, ToolStatus,
    store::{
        AddedSummary, Capability, Description, Directory, HistoryStore, HistorySummary, Keep,
        Maintenance, ModelUsage, Revision, RunActivity, ServiceIdChange, StoreError, Summaries,
        UsageSum,
        author::{Close, RecordedResult, Staged, ToolRecord},
    },
};

use super::{
    Store,
    fixture::{
        StagedRun, asking, discard, lacks, pending, position, staging, stored, with_outcome,
        write_messages,
    },
    summaries::{add, summary},
};

/// A function that returns, as bytes, all data that a store has outside of its process.
#[derive(Clone)]
pub struct ResidualData(Arc<dyn Fn() -> BoxFuture<'static, Vec<u8>> + Send + Sync>);

impl fmt::Debug for ResidualData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResidualData")
    }
}

/// Returns a store, and the function that returns the bytes of its data.
pub fn searchable<S, Bytes>(
    store: S,
    residual_data: impl Fn(&S) -> Bytes + Send + Sync + 'static,
) -> (Store, ResidualData)
where
    S: HistoryStore,
    Bytes: Future<Output = Vec<u8>> + Send + 'static,
{
    let store = Arc::new(store);
    let inner = store.clone();
    (store, ResidualData(Arc::new(move || Box::pin(residual_data(&inner)))))
}

/// Tests that deleted, discarded and pruned data cannot be found in the bytes of the store.
///
/// # Panics
///
/// Panics if the test fails.
pub fn check_residual_data<Guard, Open>(open: impl FnOnce() -> Open)
where
    Open: Future<Output = ((Store, ResidualData), Guard)>,
{
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let ((store, residual_data), _guard) = open().await;
        deleted_data_is_not_found_in_the_store(store, residual_data).await;
    });
}

impl ResidualData {
    /// Returns whether the data contains a text or its hexadecimal form, in upper or lower case.
    async fn hold(&self, text: &str) -> bool {
        let bytes = (self.0)().await;
        let hexadecimal: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let is_in = |text: &str| {
            bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text.as_bytes()))
        };
        is_in(text) || is_in(&hexadecimal)
    }
}

/// Generates a unique text.
fn planted(what: &str) -> String {
    format!("planted-{what}-{:016x}", tower_chat_core::RunId::new().random_half())
}

/// The unique texts that a test has written. Every field of a write contains such a text.
struct Planted {
    texts: Vec<String>,
}

impl Planted {
    fn new() -> Self {
        Self { texts: Vec::new() }
    }

    fn text(&mut self, what: &str) -> String {
        let text = planted(what);
        self.texts.push(text.clone());
        text
    }

    /// Returns the messages of a run from the sequence number `first`, and the row of their call.
    fn run(&mut self, first: u64) -> ([Message; 3], ToolRecord) {
        let mut calls = asking(&[&self.text("tool")]);
        for part in &mut calls.parts {
            if let tower_chat_core::Part::ToolCall(call) = part {
                call.arguments = self.text("arguments");
            }
        }
        let result = ToolResult::new("id 0", self.text("result"));
        let messages =
            [Message::user(self.text("message")), calls, Message::tool_results([result])];
        let position_of_result = position(first + 2, 0);
        let row = pending(first + 1, 0, "tool");
        let mut row =
            with_outcome(row, ToolStatus::Error, RecordedResult::InMessage(position_of_result));
        row.call_id = self.text("call id");
        row.name = self.text("name");
        row.error = Some(self.text("error"));
        (messages, row)
    }

    async fn are_gone(&self, residual_data: &ResidualData, how: &str) {
        for text in &self.texts {
            assert!(!residual_data.hold(text).await, "{text} is still stored after it was {how}");
        }
    }
}

/// Sets a description that contains unique texts. Does nothing if the store has no directory.
async fn describe(store: &Store, key: &ConversationKey, planted: &mut Planted) {
    let metadata = [(planted.text("member"), planted.text("value").into())];
    let description = Description::new()
        .with_title(planted.text("title"))
        .and_then(|description| description.with_metadata(metadata.into_iter().collect()))
        .expect("a small description");
    match store.set_description(key, &description, 0).await {
        Ok(_) | Err(StoreError::MissingCapability { .. }) => {}
        Err(error) => panic!("the description is not set: {error:?}"),
    }
}

/// Adds a summary that contains unique texts. Returns `None` if the store has no summaries.
async fn summarize(
    store: &Store,
    key: &ConversationKey,
    planted: &mut Planted,
    covers_to: u64,
) -> Option<HistorySummary> {
    if lacks(store, &[Capability::Summaries]) {
        return None;
    }
    let model = planted.text("summarizer").into();
    let text = planted.text("summary");
    let summary = summary(store, key, covers_to, &text).await.with_made_by(Some(model));
    assert_eq!(add(store, key, &summary, 0).await, AddedSummary::Stored);
    Some(summary)
}

async fn summarize_and_undo(store: &Store, key: &ConversationKey, planted: &mut Planted) {
    if let Some(summary) = summarize(store, key, planted, 5).await {
        assert!(store.remove_summary(key, summary.id).await.expect("the summary is removed"));
    }
}

async fn deleted_data_is_not_found_in_the_store(store: Store, residual_data: ResidualData) {
    let id = planted("conversation");
    let key = ConversationKey::new("scope", &*id);
    let kept = ConversationKey::new("scope", planted("kept"));
    stored(&store, write_messages(&kept, Revision::ABSENT, [Message::user("kept")])).await;

    let mut pruned = Planted::new();
    let (messages, row) = pruned.run(1);
    let mut apart = row.clone();
    let mut deleted = Planted { texts: vec![id.clone()] };
    let model = ModelUsage::new(Some(deleted.text("model").into()), UsageSum::of_calls(1, 0));
    let first = write_messages(&key, Revision::ABSENT, messages).with_tools(vec![row]);
    let activity = RunActivity::new(SystemTime::now()).with_usage([model]);
    let at = stored(&store, first.with_activity(activity)).await;
    apart.result = RecordedResult::Apart(Box::new(ToolResult::new("x", pruned.text("apart"))));
    let (messages, row) = deleted.run(4);
    let service_id = ServiceIdChange::Set(deleted.text("service id").into());
    let second =
        write_messages(&key, at, messages).with_tools(vec![apart, row]).with_service_id(service_id);
    let at = stored(&store, second).await;
    describe(&store, &key, &mut deleted).await;
    let mut removed = Planted::new();
    summarize(&store, &key, &mut pruned, 1).await;
    summarize(&store, &key, &mut deleted, 4).await;
    summarize_and_undo(&store, &key, &mut removed).await;
    removed.are_gone(&residual_data, "removed").await;
    assert!(residual_data.hold(&id).await, "the stored bytes can be searched");

    if !lacks(&store, &[Capability::Journal]) {
        let mut discarded = Planted::new();
        let mut run = StagedRun::new(&key, at);
        let (messages, row) = discarded.run(7);
        let partial = Some(discarded.text("partial text").into());
        let staged = Staged { partial_text: partial, ..staging(1) };
        stored(&store, run.write(staged, messages).with_tools(vec![row])).await;
        assert!(matches!(discard(1, 6).close, Some(Close::Discard { visible: 6 })));
        stored(&store, run.write(discard(1, 6), [])).await;
        discarded.are_gone(&residual_data, "discarded").await;
    }

    if !lacks(&store, &[Capability::Maintenance]) {
        let gone = store.prune(&key, Keep::Messages(1)).await.expect("the conversation is pruned");
        assert_eq!((gone.runs, gone.messages), (1, 3));
        pruned.are_gone(&residual_data, "pruned").await;
        assert!(residual_data.hold(&id).await);
    }

    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    deleted.are_gone(&residual_data, "deleted").await;
    assert!(residual_data.hold(kept.id()).await);
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    // The deletion of a conversation must also delete the data of its open run.
    let mut open = Planted::new();
    let mut run = StagedRun::new(&key, Revision::ABSENT);
    let (messages, row) = open.run(1);
    stored(&store, run.write(staging(1), messages).with_tools(vec![row])).await;
    assert!(store.delete(&key).await.expect("the conversation is deleted"));
    open.are_gone(&residual_data, "deleted with its open run").await;
}
