//! Tests of whole stacks above services that permanently refuse some content of a conversation.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ConversationKey, MemoryStore, Message, Part,
    PersistenceError, PersistenceMode, Role, ToolDefinition, Tools,
    error::{content_refused, is_retryable},
    message::{ContentKind, Media, MediaSource, lift_refusals},
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_providers::{
    Anthropic, Bedrock, Gemini, OpenAiChat, OpenAiResponses, Provider, ProviderClient,
};

const IMAGE: &str = "SU1BR0U=";

const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

/// A service that refuses every request that contains the test's image. If `call` is set, the first
/// answer calls the tool `draw`, which returns this image.
#[derive(Clone)]
struct RefusingService {
    sent: Arc<Mutex<Vec<String>>>,
    call: Option<Value>,
    answer: Value,
    refusal: Value,
}

impl RefusingService {
    fn new((call, answer, refusal): (Value, Value, Value)) -> Self {
        Self { sent: Arc::default(), call: Some(call), answer, refusal }
    }

    fn without_call(self) -> Self {
        Self { call: None, ..self }
    }

    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

impl Service<Request<Bytes>> for RefusingService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let body = String::from_utf8(request.body().to_vec()).unwrap();
        let mut sent = self.sent.lock().unwrap();
        let (status, answer) = match &self.call {
            _ if body.contains(IMAGE) => (400, &self.refusal),
            Some(call) if sent.is_empty() => (200, call),
            _ => (200, &self.answer),
        };
        sent.push(body);
        let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
        ready(Ok(response.body(Full::new(Bytes::from(answer.to_string()))).unwrap()))
    }
}

fn chat() -> (Value, Value, Value) {
    let answer = |message: Value| json!({"choices": [{"index": 0, "message": message}]});
    let calls = json!([{"id": "c1", "type": "function",
        "function": {"name": "draw", "arguments": "{}"}}]);
    (
        answer(json!({"role": "assistant", "content": null, "tool_calls": calls})),
        answer(json!({"role": "assistant", "content": "there"})),
        json!({"error": {"message": "You uploaded an unsupported image.", "code": "invalid_image",
            "type": "invalid_request_error", "param": "messages.[2].content.[1].image_url"}}),
    )
}

fn responses() -> (Value, Value, Value) {
    let answer = |item: Value| json!({"id": "r", "status": "completed", "output": [item]});
    let text = json!([{"type": "output_text", "text": "there", "annotations": []}]);
    (
        answer(json!({"type": "function_call", "id": "f", "call_id": "c1", "name": "draw",
            "arguments": "{}", "status": "completed"})),
        answer(json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": text})),
        json!({"error": {"message": "The image data you provided does not represent a valid image.",
            "type": "invalid_request_error", "param": null, "code": "invalid_value"}}),
    )
}

fn anthropic() -> (Value, Value, Value) {
    let answer = |block: Value, reason: &str| {
        json!({"type": "message", "role": "assistant", "content": [block], "stop_reason": reason,
            "usage": {"input_tokens": 1, "output_tokens": 1}})
    };
    (
        answer(json!({"type": "tool_use", "id": "c1", "name": "draw", "input": {}}), "tool_use"),
        answer(json!({"type": "text", "text": "there"}), "end_turn"),
        json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "Could not process image"}}),
    )
}

fn gemini() -> (Value, Value, Value) {
    let answer = |part: Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": [part]},
            "finishReason": "STOP"}]})
    };
    (
        answer(json!({"functionCall": {"name": "draw", "args": {}}})),
        answer(json!({"text": "there"})),
        // This error does not name the part of the request that is refused.
        json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
            "message": "Request contains an invalid argument."}}),
    )
}

fn bedrock() -> (Value, Value, Value) {
    let answer = |block: Value, reason: &str| {
        json!({"output": {"message": {"role": "assistant", "content": [block]}},
            "stopReason": reason, "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}})
    };
    (
        answer(json!({"toolUse": {"toolUseId": "c1", "name": "draw", "input": {}}}), "tool_use"),
        answer(json!({"text": "there"}), "end_turn"),
        json!({"message": "The model returned the following errors: Could not process image"}),
    )
}

fn image() -> Part {
    Part::Media(Media::new("image/png", MediaSource::Base64(IMAGE.to_owned())))
}

fn tools() -> Tools {
    let draw = ToolDefinition::new("draw", "Draws.", json!({"type": "object", "properties": {}}));
    Tools::new().with(tool_fn(draw, |_| async { Ok(ToolOutput::new(vec![image()])) }))
}

async fn send<P: Provider>(
    client: &ProviderClient<P, RefusingService>,
    store: &MemoryStore,
    mode: PersistenceMode,
    request: ChatRequest,
) -> Result<Answer, BoxError> {
    let agent = ChatPipeline::builder(client.clone())
        .tools(tools())
        .history(store.clone())
        .persistence(mode)
        .build()?;
    agent.oneshot(request.in_conversation(key())).await?.collect().await
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "chat")
}

/// Asserts that the run in which a tool returns the image continues after the refusal, and that all
/// later runs succeed.
async fn assert_runs_continue<P: Provider>(
    client: ProviderClient<P, RefusingService>,
    service: &RefusingService,
) {
    for (mode, streamed) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        service.sent.lock().unwrap().clear();
        let store = MemoryStore::new();
        let ask = |text: &str| match streamed {
            true => ChatRequest::user(text).streamed(),
            false => ChatRequest::user(text),
        };
        let name = format!("{client:?} {mode:?} {streamed}");
        for text in ["first", "second"] {
            let answer = send(&client, &store, mode, ask(text)).await;
            assert_eq!(answer.expect(&name).text(), "there", "{name}");
        }
        let sent = service.sent();
        let refused: Vec<bool> = sent.iter().map(|body| body.contains(IMAGE)).collect();
        assert_eq!(refused, [false, true, false, false], "{name}");
        for body in &sent[2..] {
            assert!(body.contains("the service has refused it"), "{name}: {body}");
        }
        assert_eq!(lift_refusals(&store, &key(), None).await.unwrap(), 1, "{name}");
        send(&client, &store, mode, ask("third")).await.expect(&name);
        assert!(service.sent()[4].contains(IMAGE), "{name}: the content is sent again");
    }
}

#[tokio::test]
async fn a_refused_image_of_a_tool_is_omitted_in_later_requests_to_the_service() {
    let service = RefusingService::new(chat());
    assert_runs_continue(OpenAiChat::new(service.clone()).with_model("m"), &service).await;
    let service = RefusingService::new(responses());
    assert_runs_continue(OpenAiResponses::new(service.clone()).with_model("m"), &service).await;
    let service = RefusingService::new(anthropic());
    assert_runs_continue(Anthropic::new(service.clone()).with_model("m"), &service).await;
    let service = RefusingService::new(gemini());
    assert_runs_continue(Gemini::new(service.clone()).with_model("m"), &service).await;
    let service = RefusingService::new(bedrock());
    assert_runs_continue(Bedrock::new("us-east-1", service.clone()).with_model("m"), &service)
        .await;
}

#[tokio::test]
async fn a_refused_image_of_the_user_fails_the_run_and_is_sent_to_other_services() {
    for mode in MODES {
        let store = MemoryStore::new();
        let service = RefusingService::new(anthropic()).without_call();
        let client = Anthropic::new(service.clone()).with_model("m");
        let question = Message::new(Role::User, vec![Part::text("see?"), image()]);
        let error = send(&client, &store, mode, ChatRequest::new(question)).await.unwrap_err();
        assert_eq!(is_retryable(&*error), Some(false));
        let refused = content_refused(&*error).unwrap();
        assert_eq!((&*refused.issuer, refused.named), ("anthropic", Some(ContentKind::Image)));
        let error: &PersistenceError = error.downcast_ref().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("the image in message") && text.contains("probably because of"),
            "{text}"
        );
        send(&client, &store, mode, ChatRequest::user("well?")).await.unwrap();
        assert_eq!(service.sent().len(), 2);

        let other =
            RefusingService { refusal: Value::Null, ..RefusingService::new(chat()).without_call() };
        let client = OpenAiChat::new(other.clone()).with_model("m");
        let answer = send(&client, &store, mode, ChatRequest::user("and?")).await;
        let is_stored = mode != PersistenceMode::PerRun;
        assert_eq!(other.sent()[0].contains(IMAGE), is_stored, "{mode:?}: {answer:?}");
    }
}
