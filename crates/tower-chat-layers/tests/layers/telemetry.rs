//! Tests the spans of completed, failed and dropped runs, in each mode, whole and streamed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use futures_util::StreamExt;
use tower::{Service, ServiceExt};
use tower_chat::{
    Answer, BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, ConversationKey,
    Finish, MemoryStore, Message, PersistenceMode, Role, ToolCall, ToolDefinition, Tools,
    request::{FinishReason, Usage},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{Layer, Registry, layer::Context, prelude::*, registry::LookupSpan};

const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

/// The attributes that the spans may use. They are defined in OpenTelemetry's conventions for
/// generative AI (1.41.0), errors and databases, or read by `tracing-opentelemetry` (`otel.*`).
const CONVENTIONS: [&str; 27] = [
    "db.operation.name",
    "db.system.name",
    "error.type",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.input.messages",
    "gen_ai.operation.name",
    "gen_ai.output.messages",
    "gen_ai.provider.name",
    "gen_ai.request.max_tokens",
    "gen_ai.request.model",
    "gen_ai.request.temperature",
    "gen_ai.request.top_p",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.model",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.result",
    "gen_ai.tool.name",
    "gen_ai.tool.type",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "otel.kind",
    "otel.name",
    "otel.status_code",
    "otel.status_description",
];

#[derive(Debug, Clone, Default)]
struct Recorded {
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

impl Recorded {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |value| value)
    }
}

impl Visit for Recorded {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(Id, Recorded)>>>);

impl Spans {
    fn record() -> (Self, DefaultGuard) {
        let spans = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(spans.clone()));
        (spans, guard)
    }

    fn all(&self) -> Vec<Recorded> {
        self.0.lock().unwrap().iter().map(|(_, span)| span.clone()).collect()
    }

    /// Returns the name, the parent and the outcome of each span, except those of the store.
    fn of_run(&self) -> Vec<(&'static str, Option<&'static str>, String)> {
        let spans = self.all();
        let of_run = spans.iter().filter(|span| span.name != "store");
        of_run.map(|it| (it.name, it.parent, it.field("tower_chat.outcome").to_owned())).collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Recorded)) {
        let mut spans = self.0.lock().unwrap();
        // `tracing` reuses the ids of closed spans. The last span with the id is the open one.
        let mut open = spans.iter_mut().rev().filter(|(it, span)| it == id && !span.is_closed);
        if let Some((_, span)) = open.next() {
            change(span);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).unwrap().parent().map(|parent| parent.name());
        let name = attributes.metadata().name();
        let mut span = Recorded { name, parent, ..Recorded::default() };
        attributes.record(&mut span);
        self.0.lock().unwrap().push((id.clone(), span));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |span| values.record(span));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |span| span.is_closed = true);
    }
}

async fn model(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let has_result = request.messages().iter().any(|message| message.role == Role::Tool);
    let (message, reason, usage) = if has_result {
        (Message::assistant("take an umbrella"), FinishReason::Stop, Usage::new(20, 5))
    } else {
        let call = ToolCall::new("call_7", "forecast", r#"{"city": "Lisbon"}"#);
        (Message::tool_calls([call]), FinishReason::ToolCalls, Usage::new(10, 2))
    };
    let mut finish = Finish::new(reason).with_usage(usage);
    finish.model = Some("small-2026".to_owned());
    Ok(ChatResponse::whole([message], finish))
}

fn tools() -> Tools {
    let definition = ToolDefinition::new("forecast", "Tells the weather.", serde_json::json!({}));
    Tools::new().with(tool_fn(definition, |_| async { Ok("showers until noon") }))
}

fn request(streamed: bool) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.model = Some("small".to_owned());
    let request = ChatRequest::user("what shall I pack").with_options(options);
    let request = request.in_conversation(ConversationKey::new("ana", "trip"));
    if streamed { request.streamed() } else { request }
}

fn pipeline<S>(client: S, mode: PersistenceMode, has_content: bool) -> ChatPipeline
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    ChatPipeline::builder(client)
        .tools(tools())
        .history(MemoryStore::new())
        .persistence(mode)
        .agent_name("packer")
        .provider_name("openai")
        .record_content(has_content)
        .build()
        .unwrap()
}

async fn ask(mut pipeline: ChatPipeline, request: ChatRequest) -> Result<Answer, BoxError> {
    pipeline.ready().await?.call(request).await?.collect().await
}

fn cases() -> impl Iterator<Item = (PersistenceMode, bool)> {
    MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)])
}

fn ended(name: &'static str, outcome: &str) -> (&'static str, Option<&'static str>, String) {
    let parent = (name != "invoke_agent").then_some("invoke_agent");
    (name, parent, outcome.to_owned())
}

#[tokio::test]
async fn a_run_its_service_calls_and_its_tools_have_spans_in_every_mode() {
    for case in cases() {
        let (spans, _guard) = Spans::record();
        let (mode, streamed) = case;
        ask(pipeline(tower::service_fn(model), mode, false), request(streamed)).await.unwrap();
        assert_eq!(
            spans.of_run(),
            [
                ended("invoke_agent", "completed"),
                ended("chat", "completed"),
                ended("execute_tool", "completed"),
                ended("chat", "completed"),
            ],
            "{case:?}"
        );
        let all = spans.all();
        assert!(all.iter().all(|span| span.is_closed), "{case:?}: {all:#?}");
        for span in &all {
            assert_eq!(span.field("tower_chat.outcome"), "completed", "{case:?}: {span:?}");
            let known = |name: &str| CONVENTIONS.contains(&name) || name.starts_with("tower_chat.");
            let unknown: Vec<_> = span.fields.keys().filter(|name| !known(name)).collect();
            assert!(unknown.is_empty(), "{case:?}: {unknown:?}");
        }
        let appends = all.iter().filter(|span| span.field("db.operation.name") == "append").count();
        assert_eq!(
            appends,
            if mode == PersistenceMode::PerRun { 1 } else { appends.max(2) },
            "{case:?}"
        );
    }
}

#[tokio::test]
async fn spans_have_the_fields_of_the_semantic_conventions() {
    let (spans, _guard) = Spans::record();
    ask(pipeline(tower::service_fn(model), MODES[1], false), request(false)).await.unwrap();
    let all = spans.all();
    let found = |name: &'static str| all.iter().filter(move |span| span.name == name);
    let agent = found("invoke_agent").next().unwrap();
    for (field, value) in [
        ("otel.name", "invoke_agent packer"),
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "packer"),
        ("gen_ai.conversation.id", "trip"),
        ("gen_ai.request.model", "small"),
        ("gen_ai.response.finish_reasons", "stop"),
        ("gen_ai.usage.input_tokens", "30"),
        ("gen_ai.usage.output_tokens", "7"),
        ("tower_chat.scope", "ana"),
        ("tower_chat.mode", "per_service_call"),
        ("tower_chat.streamed", "false"),
    ] {
        assert_eq!(agent.field(field), value, "{field}");
    }
    let chats: Vec<_> = found("chat").collect();
    for (chat, reason, tokens) in [(chats[0], "tool_calls", "10"), (chats[1], "stop", "20")] {
        assert_eq!(chat.field("otel.name"), "chat small");
        assert_eq!(chat.field("otel.kind"), "client");
        assert_eq!(chat.field("gen_ai.provider.name"), "openai");
        assert_eq!(chat.field("gen_ai.conversation.id"), "trip");
        assert_eq!(chat.field("gen_ai.response.model"), "small-2026");
        assert_eq!(chat.field("gen_ai.response.finish_reasons"), reason);
        assert_eq!(chat.field("gen_ai.usage.input_tokens"), tokens);
    }
    for store in found("store") {
        assert_eq!(store.field("db.system.name"), "memory");
    }
    let tool = found("execute_tool").next().unwrap();
    assert_eq!(tool.field("otel.name"), "execute_tool forecast");
    assert_eq!(tool.field("gen_ai.tool.name"), "forecast");
    assert_eq!(tool.field("gen_ai.tool.call.id"), "call_7");
    assert_eq!(tool.field("gen_ai.tool.type"), "function");
}

#[tokio::test]
async fn spans_contain_content_only_if_the_application_enables_it() {
    let texts = ["what shall I pack", "Lisbon", "showers until noon", "take an umbrella"];
    for has_content in [false, true] {
        let (spans, _guard) = Spans::record();
        ask(pipeline(tower::service_fn(model), MODES[1], has_content), request(true))
            .await
            .unwrap();
        let recorded = format!("{:?}", spans.all());
        for text in texts {
            assert_eq!(recorded.contains(text), has_content, "{text}");
        }
    }
}

#[tokio::test]
async fn the_spans_of_a_dropped_answer_report_that_it_was_dropped() {
    for (mode, streamed) in cases() {
        let (spans, _guard) = Spans::record();
        let answer = Step::text("some words of an answer");
        let first = if streamed { answer.streamed().hangs_after(1) } else { answer };
        let model = ScriptedModel::new([first, Step::hang()]);
        let mut pipeline = pipeline(model.clone(), mode, false);
        if streamed {
            let response = pipeline.ready().await.unwrap().call(request(true)).await.unwrap();
            let mut response = Box::pin(response);
            response.next().await.unwrap().unwrap();
        } else {
            ask(pipeline.clone(), request(false)).await.unwrap();
            spans.0.lock().unwrap().clear();
            let call = pipeline.ready().await.unwrap().call(request(false));
            tokio::select! {
                _ = call => panic!("the model hangs"),
                () = model.called(2) => {}
            }
        }
        let expected = [ended("invoke_agent", "dropped"), ended("chat", "dropped")];
        assert_eq!(spans.of_run(), expected, "{mode:?}, {streamed}");
        assert!(spans.all().iter().all(|span| span.is_closed), "{mode:?}, {streamed}");
    }
}

#[tokio::test]
async fn a_failed_service_call_marks_its_span_and_the_span_of_the_run_as_failed() {
    for (mode, streamed) in cases() {
        let (spans, _guard) = Spans::record();
        let model = ScriptedModel::new([Step::error("the account of ana is overdrawn")]);
        ask(pipeline(model, mode, false), request(streamed)).await.unwrap_err();
        let expected = [ended("invoke_agent", "failed"), ended("chat", "failed")];
        assert_eq!(spans.of_run(), expected, "{mode:?}, {streamed}");
        for span in spans.all().iter().filter(|span| span.name != "store") {
            assert_eq!(span.field("error.type"), "_OTHER");
            assert_eq!(span.field("otel.status_code"), "ERROR");
            assert!(!format!("{span:?}").contains("overdrawn"), "an error may contain content");
        }
    }
}
