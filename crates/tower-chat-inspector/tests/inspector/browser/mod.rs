//! Tests the pages in a browser. The test loads every page in the light and the dark colour scheme
//! and in a narrow and a wide window, and uses the pages with the keyboard only. The store contains
//! a conversation of 10,000 messages, hostile texts, very large texts, a run in flight, and a call
//! that waits for approval.

mod install;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::routing::post;
use tokio::net::TcpListener;
use tower::{Layer as _, Service as _, ServiceExt as _};
use tower_chat::{
    ChatPipeline, ChatRequest, ChatUpdate, Finish, HistoryStore as _, MemoryStore, Message,
    PersistenceMode, ToolCall, ToolResult,
    message::MessageId,
    request::Usage,
    run::RunId,
    store::{
        DescriptionPatch, Directory, ModelUsage, Revision, RunActivity, SequencePosition, UsageSum,
        author::{RecordedResult, ToolRecord, Write},
    },
    tool::ToolStatus,
};
use tower_chat_delivery::{DetachedRunsLayer, MemoryUpdateLog};
use tower_chat_inspector::Inspector;
use tower_chat_testkit::{Gate, ScriptedModel, Step, skip};

use crate::support::*;

/// The number of messages of a conversation that no page may load completely.
const MANY: usize = 10_000;

async fn add_many(store: &MemoryStore) {
    let messages = (0..MANY).map(|number| match number % 2 {
        0 => Message::user(format!("Question {number}?")),
        _ => Message::assistant(format!("Answer {number}.")),
    });
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key("many"), id, Revision::ABSENT, messages.map(Arc::new));
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
}

/// Adds a conversation with megabytes of text without spaces.
async fn add_enormous(store: &MemoryStore) {
    let arguments = format!(r#"{{"what": "{}"}}"#, "y".repeat(2 << 20));
    let messages = [
        Message::user("x".repeat(4 << 20)),
        Message::tool_calls([ToolCall::new("e1", "find", arguments)]),
        Message::tool_results([ToolResult::new("e1", "<b>".repeat(1 << 20))]),
        Message::assistant("\u{202e}".repeat(1 << 20)),
    ];
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key("enormous"), id, Revision::ABSENT, messages.map(Arc::new));
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
}

/// Adds a run with parallel tool calls that took some time, one of which failed.
async fn add_trip(store: &MemoryStore) {
    let calls = [
        ToolCall::new("t1", "trains", r#"{"from": "Bern", "to": "Paris"}"#),
        ToolCall::new("t2", "flights", r#"{"from": "BRN", "to": "PAR"}"#),
        ToolCall::new("t3", "weather", r#"{"city": "Paris", "days": 3}"#),
    ];
    let results = [
        ToolResult::new("t1", "08:04, 3 h 58 min, from 59 CHF"),
        ToolResult::error("t2", "no airline flies from BRN today"),
        ToolResult::new("t3", "rain, rain, sun"),
    ];
    let messages = [
        Message::user("How do I get from Bern to Paris tomorrow, and do I need a coat?"),
        Message::tool_calls(calls.clone()),
        Message::tool_results(results),
        Message::assistant("Take the train at 08:04; it rains, so take a coat."),
    ];
    let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    let at = |milliseconds| Some(begun + Duration::from_millis(milliseconds));
    let times = [(900, 1740), (900, 2310), (910, 1030)];
    let statuses = [ToolStatus::Ok, ToolStatus::Error, ToolStatus::Ok];
    let records = calls.iter().zip(times).zip(statuses).zip(0..);
    let records = records.map(|(((call, (start, end)), status), index)| {
        let position = SequencePosition { sequence: 2, index };
        let id = call.id.clone().unwrap_or_default();
        let mut record = ToolRecord::pending(position, 0, id, call.name.clone());
        record.status = status;
        record.result = RecordedResult::InMessage(SequencePosition { sequence: 3, index });
        (record.started_at, record.finished_at) = (at(start), at(end));
        record
    });
    let added = |(mut message, milliseconds): (Message, u64)| {
        message.added_at = at(milliseconds);
        Arc::new(message)
    };
    let messages = messages.into_iter().zip([0, 880, 2320, 4100]).map(added);
    let used = UsageSum::of_calls(2, 3).with_tokens(Usage::new(1912, 164)).with_cost_nanos(806_000);
    let activity = RunActivity::new(begun + Duration::from_millis(4100))
        .with_start(begun)
        .with_mode(PersistenceMode::PerServiceCall)
        .with_usage([ModelUsage::new(Some("gpt-5-mini".into()), used)]);
    let id = MessageId { run: RunId::at(begun), index: 0 };
    let write = Write::new(key("trip"), id, Revision::ABSENT, messages)
        .with_tools(records.collect())
        .with_activity(activity);
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    let title = DescriptionPatch::new().with_title("Bern to Paris");
    store.change_description(&key("trip"), &title).await.unwrap();
}

/// Adds a run with a call that waits for approval, and a run whose model waits for the gate.
/// Returns the pipeline that can continue the first run.
async fn add_runs(store: &MemoryStore, gate: &Gate, runs: &DetachedRunsLayer) -> ChatPipeline {
    let pay = ToolCall::new("p1", "pay", r#"{"cents": 990}"#);
    let steps = [Step::message(Message::tool_calls([pay])), Step::text("The bill is paid.")];
    let mut agent = pipeline(store, steps.into(), PersistenceMode::PerServiceCall);
    let request = ChatRequest::user("Pay the bill.").in_conversation(key("bill"));
    agent.ready().await.unwrap().call(request).await.unwrap().collect().await.unwrap();

    let call = ToolCall::new("w1", "find", r#"{"what": "umbrella"}"#);
    let deltas = ["The <b>umbrella</b> ", "is in the hall."];
    let deltas = deltas.map(|text| ChatUpdate::TextDelta(text.to_owned()));
    let finish = ChatUpdate::Finish(Finish::stop().into());
    let steps = [
        Step::message(Message::tool_calls([call])),
        Step::updates(deltas.into_iter().chain([finish])).waits_after(1, gate),
    ];
    let model = ScriptedModel::new(steps);
    let live = ChatPipeline::builder(model).tools(tools()).history(store.clone());
    let live = live.persistence(PersistenceMode::Journaled).build().unwrap();
    let request = ChatRequest::user("Where is my umbrella?").in_conversation(key("live"));
    tokio::spawn(runs.layer(live).oneshot(request.streamed()));
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_can_reach_and_use_every_page_in_a_browser() {
    let (node, chromium) = match install::browser() {
        Ok(installed) => installed,
        Err(reason) => return skip("the pages in a browser", reason),
    };
    let (store, gate) = (filled().await, Gate::closed());
    add_many(&store).await;
    add_enormous(&store).await;
    add_trip(&store).await;
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let agent = add_runs(&store, &gate, &runs).await;
    let inspector = Inspector::new(store).with_writes(true).with_agent(agent).with_runs(runs);
    let inspector = inspector.at_path("/inspector");
    let app = axum::Router::new()
        .nest("/inspector", inspector.into_router())
        // The script of the test uses this route to open the gate for which the model waits.
        .route("/go", post(async move || gate.open()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/inspector", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inspector/browser/browse.mjs");
    let mut browse = Command::new("node");
    browse
        .current_dir(&node)
        .arg(script)
        .args([address.as_str(), HOSTILE])
        .arg(chromium)
        .arg(&node);
    if let Some(folder) = std::env::var_os("TOWER_CHAT_SCREENSHOTS") {
        browse.arg(PathBuf::from(folder));
    }
    let output = tokio::task::spawn_blocking(move || browse.output().unwrap()).await.unwrap();
    serving.abort();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
}
