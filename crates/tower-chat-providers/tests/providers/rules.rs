//! Tests of the rules of services in clients: which rules are chosen, which requests are sent, and
//! which answers are returned.

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
use tower::ServiceExt;
use tower_chat_core::{
    Answer, ChangeKind, ChatOptions, ChatRequest, Media, MediaSource, Message, Part, Role,
    ToolCall, ToolDefinition,
};
use tower_chat_providers::{
    Anthropic, Bedrock, Cohere, CompatibleService, Gemini, Mistral, Ollama, OpenAiChat,
    OpenAiResponses, Provider, ProviderClient, ProviderError, ProviderErrorKind, Vertex,
};
use tower_chat_wire::{body::BodyWire, rules::ServiceRules};
use tower_service::Service;

/// A transport that records the bodies of requests, and returns the same answer to each of them.
#[derive(Clone, Default)]
struct Capture {
    sent: Arc<Mutex<Vec<Value>>>,
    answer: Arc<str>,
    is_stream: bool,
}

impl Capture {
    fn answering(answer: &Value) -> Self {
        Self { answer: answer.to_string().into(), ..Self::default() }
    }

    fn streaming(events: &[Value]) -> Self {
        let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        Self { answer: (events + "data: [DONE]\n\n").into(), is_stream: true, ..Self::default() }
    }

    fn sent(&self) -> Vec<Value> {
        self.sent.lock().unwrap().clone()
    }
}

impl Service<Request<Bytes>> for Capture {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let body = serde_json::from_slice(request.body()).unwrap();
        self.sent.lock().unwrap().push(body);
        let kind = if self.is_stream { "text/event-stream" } else { "application/json" };
        let answer = Full::new(Bytes::from(self.answer.to_string()));
        ready(Ok(Response::builder().header(CONTENT_TYPE, kind).body(answer).unwrap()))
    }
}

async fn ask<P: Provider>(
    client: ProviderClient<P, Capture>,
    request: ChatRequest,
) -> Result<Answer, ProviderError> {
    let response = client.oneshot(request).await?;
    Ok(response.collect().await.expect("a whole answer"))
}

fn chat_answer(message: &Value) -> Value {
    json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
}

/// Returns the next request of a conversation with this answer.
fn next_request(answer: &Answer) -> ChatRequest {
    let mut messages = vec![Message::user("Is it cold?")];
    messages.extend(answer.messages.iter().map(|message| Message::clone(message)));
    messages.push(Message::user("And in Rome?"));
    ChatRequest::new(messages)
}

#[tokio::test]
async fn reasoning_is_sent_only_to_the_service_that_created_it() {
    let thinking =
        chat_answer(&json!({"role": "assistant", "content": "It is.", "reasoning_content": "Hm."}));
    let capture = Capture::answering(&thinking);
    let deepseek =
        || OpenAiChat::service_over(CompatibleService::DeepSeek, capture.clone()).with_model("m");
    let answer = ask(deepseek(), ChatRequest::user("Is it cold?")).await.unwrap();
    let request = next_request(&answer);
    ask(deepseek(), request.clone()).await.unwrap();
    assert_eq!(capture.sent()[1]["messages"][1]["reasoning_content"], "Hm.");
    let expected = json!({"role": "assistant", "content": "It is."});
    ask(Mistral::new(capture.clone()).with_model("m"), request.clone()).await.unwrap();
    for service in [CompatibleService::Groq, CompatibleService::XAi, CompatibleService::OpenRouter]
    {
        let client = OpenAiChat::service_over(service, capture.clone()).with_model("m");
        ask(client, request.clone()).await.unwrap();
    }
    let unknown = OpenAiChat::compatible_over("https://llm.example.com/v1", capture.clone());
    ask(unknown, request).await.unwrap();
    for sent in &capture.sent()[2..] {
        assert_eq!(sent["messages"][1], expected);
    }
}

#[tokio::test]
async fn a_tool_name_that_the_service_refuses_is_restored_in_the_answer() {
    let original = "get weather";
    let tool = ToolDefinition::new(original, "Looks.", json!({"type": "object"}));
    let request =
        ChatRequest::user("Is it cold?").with_options(ChatOptions::new().with_tools([tool]));
    let capture =
        Capture::answering(&chat_answer(&json!({"role": "assistant", "content": "It is."})));
    let answer = ask(OpenAiChat::new(capture.clone()), request.clone()).await.unwrap();
    let kinds: Vec<ChangeKind> = answer.finish.changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Name, ChangeKind::Definition]);
    let sent = capture.sent()[0]["tools"][0]["function"]["name"].as_str().unwrap().to_owned();
    assert_ne!(sent, original);
    let call = |arguments: &str| {
        json!({"id": "call_1", "type": "function", "index": 0,
            "function": {"name": sent, "arguments": arguments}})
    };
    let whole =
        chat_answer(&json!({"role": "assistant", "content": null, "tool_calls": [call("{}")]}));
    let piece = |delta: Value, reason: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let events = [
        piece(json!({"role": "assistant", "tool_calls": [call("")]}), Value::Null),
        piece(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}), Value::Null),
        piece(json!({}), json!("tool_calls")),
    ];
    let streamed = Capture::streaming(&events);
    for (capture, request) in
        [(Capture::answering(&whole), request.clone()), (streamed, request.streamed())]
    {
        let answer = ask(OpenAiChat::new(capture), request).await.unwrap();
        let names: Vec<&str> = answer.messages[0].calls().map(|call| &*call.name).collect();
        assert_eq!(names, [original]);
        assert!(!answer.finish.changes.is_empty());
    }
}

#[tokio::test]
async fn unsupported_media_in_a_new_message_are_refused_before_a_request_is_sent() {
    let docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    let file = || Part::Media(Media::new(docx, MediaSource::Base64("AAAA".to_owned())));
    let new = || ChatRequest::new(Message::new(Role::User, vec![Part::text("Read."), file()]));
    let capture = Capture::answering(&json!({}));
    let errors = [
        ask(Anthropic::new(capture.clone()).with_model("m"), new()).await,
        ask(Gemini::new(capture.clone()).with_model("m"), new()).await,
        ask(Vertex::new("p", "global", capture.clone()).with_model("claude-x"), new()).await,
        ask(Cohere::new(capture.clone()).with_model("m"), new()).await,
        ask(Ollama::new(capture.clone()).with_model("m"), new()).await,
        ask(OpenAiChat::new(capture.clone()), new()).await,
    ];
    for error in errors {
        let error = error.expect_err("an error");
        assert!(matches!(error.kind(), ProviderErrorKind::UnsupportedMedia(_)), "{error}");
        assert!(error.to_string().contains(docx) && !error.is_retryable(), "{error}");
        assert_eq!(tower_chat_core::is_retryable(&error), Some(false), "{error}");
    }
    assert!(capture.sent().is_empty());
    // Bedrock and Responses accept the document.
    let answer = json!({"output": {"message": {"role": "assistant", "content": [{"text": "Yes."}]}}, "stopReason": "end_turn"});
    let capture = Capture::answering(&answer);
    ask(Bedrock::new("eu-west-1", capture.clone()).with_model("m"), new()).await.unwrap();
    assert_eq!(capture.sent()[0]["messages"][0]["content"][1]["document"]["format"], "docx");
}

#[tokio::test]
async fn rules_that_are_set_replace_the_rules_of_the_address() {
    let capture = Capture::answering(&chat_answer(&json!({"role": "assistant", "content": "Hi."})));
    let call = ToolCall::new("call_1", "look", "{}");
    let mut result = call.answer("one");
    let picture = Media::new("image/png", MediaSource::Base64("AAAA".to_owned()));
    result.content.push(Part::Media(picture));
    let request = ChatRequest::new(vec![
        Message::user("Look."),
        Message::tool_calls([call]),
        Message::tool_results([result]),
    ]);
    let client = OpenAiChat::compatible_over("http://localhost:8080/v1", capture.clone());
    ask(client.clone(), request.clone()).await.unwrap();
    let rules = ServiceRules::named(BodyWire::OpenAiChat, "llama.cpp").unwrap();
    ask(client.with_rules(rules), request).await.unwrap();
    let sent = capture.sent();
    assert_eq!(sent[0]["messages"][2]["content"], "one");
    assert_eq!(sent[0]["messages"][3]["role"], "user");
    assert_eq!(sent[1]["messages"][2]["content"][1]["type"], "image_url");
}

#[tokio::test]
async fn encrypted_reasoning_of_openai_is_not_sent_to_azure() {
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AA"});
    let text = json!([{"type": "output_text", "text": "It is.", "annotations": []}]);
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text});
    let answer = json!({"id": "resp_1", "object": "response", "status": "completed", "output": [item, message]});
    let capture = Capture::answering(&answer);
    let openai = || OpenAiResponses::new(capture.clone()).with_model("m");
    let answer = ask(openai(), ChatRequest::user("Is it cold?")).await.unwrap();
    ask(openai(), next_request(&answer)).await.unwrap();
    let azure = OpenAiResponses::azure("https://mine.openai.azure.com", capture.clone());
    ask(azure.with_model("m"), next_request(&answer)).await.unwrap();
    let sent = capture.sent();
    assert!(sent[1].to_string().contains(r#""encrypted_content":"AA""#));
    assert!(!sent[2].to_string().contains(r#""encrypted_content""#));
    assert!(sent[2].to_string().contains("It is."));
}
