//! Tests the metrics of completed, failed and dropped runs, in each mode, whole and streamed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use futures_util::StreamExt;
use tower::{Service, ServiceExt};
use tower_chat::{
    Answer, BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, ConversationKey,
    Finish, HistoryStore, MemoryStore, Message, PersistenceMode, Role, ToolCall, ToolDefinition,
    Tools,
    message::MessageId,
    request::{FinishReason, Usage},
    run::RunId,
    store::{Revision, StoreError, author::Write},
    tool_fn,
};
use tower_chat_testkit::{FaultyStore, RecordedMetrics, ScriptedModel, Step, cases};

const MODES: [(PersistenceMode, &str); 3] = [
    (PersistenceMode::PerRun, "per_run"),
    (PersistenceMode::PerServiceCall, "per_service_call"),
    (PersistenceMode::Journaled, "journaled"),
];

async fn model(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let has_result = request.messages().iter().any(|message| message.role == Role::Tool);
    let (message, reason, usage) = if has_result {
        (Message::assistant("bring a raincoat"), FinishReason::Stop, Usage::new(200, 50))
    } else {
        let call = ToolCall::new("call_3", "tides", r#"{"harbour": "Porto"}"#);
        (Message::tool_calls([call]), FinishReason::ToolCalls, Usage::new(100, 20))
    };
    let mut finish = Finish::new(reason).with_usage(usage);
    finish.model = Some("large-2026".to_owned());
    Ok(ChatResponse::whole([message], finish))
}

fn request(streamed: bool) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.model = Some("large".to_owned());
    let request = ChatRequest::user("when does the ferry leave").with_options(options);
    let request = request.in_conversation(ConversationKey::new("rui", "ferry"));
    if streamed { request.streamed() } else { request }
}

fn pipeline<S>(client: S, store: impl HistoryStore, mode: PersistenceMode) -> ChatPipeline
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    let definition = ToolDefinition::new("tides", "Tells the tides.", serde_json::json!({}));
    let tools = Tools::new().with(tool_fn(definition, |_| async { Ok("high water at six") }));
    ChatPipeline::builder(client)
        .tools(tools)
        .history(store)
        .persistence(mode)
        .agent_name("pilot")
        .provider_name("anthropic")
        .build()
        .unwrap()
}

async fn ask(mut pipeline: ChatPipeline, request: ChatRequest) -> Result<Answer, BoxError> {
    pipeline.ready().await?.call(request).await?.collect().await
}

/// Returns one line for each metric: its name, its labels and its count.
fn expected(lines: &[(&str, &str, &str)]) -> Vec<String> {
    lines.iter().map(|(name, labels, count)| format!("{name}{{{labels}}} {count}")).collect()
}

fn store_operations(operations: &[(&str, usize)]) -> Vec<String> {
    let line = |(operation, count): &(&str, usize)| {
        let labels = format!("db.operation.name={operation},db.system.name=memory");
        let name = "tower_chat.store.operation.duration";
        format!("{name}{{{labels},tower_chat.outcome=completed}} {count} values")
    };
    operations.iter().map(line).collect()
}

const CHAT: &str = "gen_ai.operation.name=chat,gen_ai.provider.name=anthropic,\
    gen_ai.request.model=large";
const RUN: &str = "gen_ai.agent.name=pilot,gen_ai.request.model=large";

#[tokio::test]
async fn a_run_its_service_calls_its_tools_and_its_store_are_measured_in_every_mode() {
    for ((mode, name), streamed) in cases!(MODES, [false, true]) {
        let metrics = RecordedMetrics::new();
        let _recording = metrics.record_this_thread();
        let client = tower::service_fn(model);
        ask(pipeline(client, MemoryStore::new(), mode), request(streamed)).await.unwrap();
        let answered = format!("{CHAT},gen_ai.response.model=large-2026");
        let mut lines = expected(&[
            (
                "gen_ai.client.operation.duration",
                &format!("{answered},tower_chat.outcome=completed"),
                "2 values",
            ),
            (
                "gen_ai.client.token.usage",
                &format!("{answered},gen_ai.token.type=input"),
                "2 values",
            ),
            (
                "gen_ai.client.token.usage",
                &format!("{answered},gen_ai.token.type=output"),
                "2 values",
            ),
            (
                "gen_ai.execute_tool.duration",
                "gen_ai.tool.name=tides,tower_chat.outcome=completed",
                "1 values",
            ),
            (
                "gen_ai.invoke_agent.duration",
                &format!("{RUN},tower_chat.mode={name},tower_chat.outcome=completed"),
                "1 values",
            ),
        ]);
        // The four writes contain the user message, the answer with the start of its calls, the
        // result, and the final answer with the commit.
        let writes = match mode {
            PersistenceMode::PerRun => 1,
            PersistenceMode::PerServiceCall => 2,
            _ => 4,
        };
        lines.extend(store_operations(&[("append", writes), ("head", 1), ("reserve", writes)]));
        assert_eq!(metrics.lines(), lines);
        assert_eq!(metrics.values("gen_ai.client.token.usage"), [100.0, 200.0, 20.0, 50.0]);
    }
}

#[tokio::test]
async fn the_time_to_the_first_chunk_and_the_tokens_of_each_kind_are_measured() {
    for ((mode, name), streamed) in cases!(MODES, [false, true]) {
        let metrics = RecordedMetrics::new();
        let _recording = metrics.record_this_thread();
        let mut usage = Usage::new(1_000, 70);
        (usage.cached_input_tokens, usage.reasoning_tokens) = (900, 60);
        let finish = Finish::new(FinishReason::Stop).with_usage(usage);
        let step = Step::answer([Message::assistant("the ferry is late")], finish);
        let model = ScriptedModel::new([if streamed { step.streamed() } else { step }]);
        ask(pipeline(model, MemoryStore::new(), mode), request(streamed)).await.unwrap();
        let first = match streamed {
            true => vec![("gen_ai.client.operation.time_to_first_chunk", CHAT, "1 values")],
            false => vec![],
        };
        let mut lines = expected(&[(
            "gen_ai.client.operation.duration",
            &format!("{CHAT},tower_chat.outcome=completed"),
            "1 values",
        )]);
        lines.extend(expected(&first));
        lines.extend(expected(&[
            ("gen_ai.client.token.usage", &format!("{CHAT},gen_ai.token.type=input"), "1 values"),
            ("gen_ai.client.token.usage", &format!("{CHAT},gen_ai.token.type=output"), "1 values"),
            (
                "gen_ai.invoke_agent.duration",
                &format!("{RUN},tower_chat.mode={name},tower_chat.outcome=completed"),
                "1 values",
            ),
            ("tower_chat.client.cached_tokens", CHAT, "1 values"),
            ("tower_chat.client.reasoning_tokens", CHAT, "1 values"),
        ]));
        let mut found = metrics.lines();
        found.retain(|line| !line.starts_with("tower_chat.store."));
        assert_eq!(found, lines);
        assert_eq!(metrics.values("gen_ai.client.token.usage"), [1_000.0, 70.0]);
        assert_eq!(metrics.values("tower_chat.client.cached_tokens"), [900.0]);
        assert_eq!(metrics.values("tower_chat.client.reasoning_tokens"), [60.0]);
    }
}

#[tokio::test]
async fn a_dropped_answer_is_measured_with_the_outcome_dropped() {
    for ((mode, name), streamed) in cases!(MODES, [false, true]) {
        let answer = Step::text("some words about ferries");
        let step = if streamed { answer.streamed().hangs_after(1) } else { Step::hang() };
        let model = ScriptedModel::new([step]);
        let mut pipeline = pipeline(model.clone(), MemoryStore::new(), mode);
        let metrics = RecordedMetrics::new();
        let _recording = metrics.record_this_thread();
        if streamed {
            let response = pipeline.ready().await.unwrap().call(request(true)).await.unwrap();
            Box::pin(response).next().await.unwrap().unwrap();
        } else {
            let call = pipeline.ready().await.unwrap().call(request(false));
            tokio::select! {
                _ = call => panic!("the model hangs"),
                () = model.called(1) => {}
            }
        }
        let first = match streamed {
            true => vec![("gen_ai.client.operation.time_to_first_chunk", CHAT, "1 values")],
            false => vec![],
        };
        let mut lines = expected(&[(
            "gen_ai.client.operation.duration",
            &format!("{CHAT},tower_chat.outcome=dropped"),
            "1 values",
        )]);
        lines.extend(expected(&first));
        lines.extend(expected(&[(
            "gen_ai.invoke_agent.duration",
            &format!("{RUN},tower_chat.mode={name},tower_chat.outcome=dropped"),
            "1 values",
        )]));
        let mut found = metrics.lines();
        found.retain(|line| !line.starts_with("tower_chat.store."));
        assert_eq!(found, lines);
    }
}

#[tokio::test]
async fn a_failure_is_measured_with_its_error_type_and_without_its_text() {
    for ((mode, name), streamed) in cases!(MODES, [false, true]) {
        let metrics = RecordedMetrics::new();
        let _recording = metrics.record_this_thread();
        let model = ScriptedModel::new([Step::error("the account of rui is overdrawn")]);
        ask(pipeline(model, MemoryStore::new(), mode), request(streamed)).await.unwrap_err();
        let mut found = metrics.lines();
        found.retain(|line| !line.starts_with("tower_chat.store."));
        let failed = "tower_chat.outcome=failed";
        let lines = expected(&[
            (
                "gen_ai.client.operation.duration",
                &format!("error.type=_OTHER,{CHAT},{failed}"),
                "1 values",
            ),
            (
                "gen_ai.invoke_agent.duration",
                &format!("error.type=_OTHER,{RUN},tower_chat.mode={name},{failed}"),
                "1 values",
            ),
            ("tower_chat.errors", "error.type=_OTHER,gen_ai.operation.name=chat", "1"),
            ("tower_chat.errors", "error.type=_OTHER,gen_ai.operation.name=invoke_agent", "1"),
        ]);
        assert_eq!(found, lines);
    }
}

#[tokio::test]
async fn a_failing_tool_is_an_error_of_the_tool_alone() {
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let definition = ToolDefinition::new("fog", "Tells of fog.", serde_json::json!({}));
    let fog = tool_fn(definition, |_| async { Err::<String, _>("no sensor".into()) });
    let pipeline = ChatPipeline::builder(ScriptedModel::new([
        Step::message(Message::tool_calls([ToolCall::new("call_1", "fog", "{}")])),
        Step::text("I cannot say"),
    ]));
    let pipeline = pipeline.tools(Tools::new().with(fog)).build().unwrap();
    ask(pipeline, ChatRequest::user("is it foggy")).await.unwrap();
    assert_eq!(
        metrics.lines(),
        [
            "gen_ai.client.operation.duration{gen_ai.operation.name=chat,\
             tower_chat.outcome=completed} 2 values",
            "gen_ai.execute_tool.duration{error.type=tool_error,gen_ai.tool.name=fog,\
             tower_chat.outcome=failed} 1 values",
            "gen_ai.invoke_agent.duration{tower_chat.outcome=completed} 1 values",
            "tower_chat.errors{error.type=tool_error,gen_ai.operation.name=execute_tool} 1",
        ]
    );
}

#[tokio::test]
async fn the_number_of_messages_in_the_outbox_is_a_gauge() {
    let store = FaultyStore::new(MemoryStore::new());
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let model = ScriptedModel::new([Step::text("at noon"), Step::text("from pier two")]);
    let pipeline = pipeline(model, store.clone(), PersistenceMode::PerRun);
    store.fail_next_append(StoreError::backend("write", true, "no room on the disk"));
    ask(pipeline.clone(), request(false)).await.unwrap();
    let waiting = [
        "tower_chat.outbox.failures{db.system.name=memory} 1",
        "tower_chat.outbox.messages{db.system.name=memory} = 2",
    ];
    assert_eq!(metrics.lines_of("tower_chat.outbox"), waiting);
    let errors = "tower_chat.errors{db.operation.name=append,error.type=unavailable} 1";
    assert_eq!(metrics.lines_of("tower_chat.errors"), [errors]);
    let where_from =
        ChatRequest::user("where from").in_conversation(ConversationKey::new("rui", "ferry"));
    ask(pipeline, where_from).await.unwrap();
    let stored = [waiting[0], "tower_chat.outbox.messages{db.system.name=memory} = 0"];
    assert_eq!(metrics.lines_of("tower_chat.outbox"), stored);
}

#[tokio::test]
async fn calls_without_a_result_are_counted_when_a_run_repairs_them() {
    let store = MemoryStore::new();
    let key = ConversationKey::new("rui", "ferry");
    let calls = [ToolCall::new("c1", "tides", "{}"), ToolCall::new("c2", "tides", "{}")];
    let messages = [Message::user("how high is the water"), Message::tool_calls(calls)];
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key, id, Revision::ABSENT, messages.map(Into::into));
    let slot = store.reserve().await.unwrap();
    store.append(slot, vec![write]).await.unwrap();
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let model = ScriptedModel::new([Step::text("it is unclear")]);
    ask(pipeline(model, store, PersistenceMode::PerRun), request(false)).await.unwrap();
    assert_eq!(metrics.lines_of("tower_chat.run"), ["tower_chat.run.repaired_calls 2"]);
}

#[tokio::test]
async fn conflicts_are_counted_by_the_store() {
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let store = MemoryStore::new();
    for text in ["first", "second"] {
        let id = MessageId { run: RunId::new(), index: 0 };
        let key = ConversationKey::new("rui", "queue");
        let write = Write::new(key, id, Revision::ABSENT, [Message::user(text).into()]);
        let _ = store.append(store.reserve().await.unwrap(), vec![write]).await;
    }
    assert_eq!(metrics.lines(), ["tower_chat.store.conflicts{db.system.name=memory} 1"]);
}
