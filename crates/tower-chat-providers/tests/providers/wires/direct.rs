//! Tests of request bodies that no recording contains, for Bedrock, Cohere and Ollama.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message as StreamMessage};
use serde_json::{Value, json};
use tower_chat_core::{ChatRequest, Message, ToolChoice};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};

use crate::{
    client::Provider,
    client::ask,
    server::{Received, Reply, Server},
    wires::requests::{options, request_to},
};

const BEDROCK: &str = r#"{"output":{"message":{"role":"assistant","content":[{"text":"ok"}]}}}"#;
const COHERE: &str = r#"{"message":{"role":"assistant","content":[{"type":"text","text":"ok"}]}}"#;
const OLLAMA: &str = r#"{"message":{"role":"assistant","content":"ok"},"done":true}"#;

async fn sent_request(provider: Provider, answer: &str, request: ChatRequest) -> Received {
    let server = Server::start([Reply::json(200, answer)]).await;
    ask(&mut server.client(provider).build(), request).await.unwrap();
    server.received().remove(0)
}

#[tokio::test]
async fn the_options_are_sent_in_the_fields_of_bedrock() {
    let model = "us.amazon.nova-x-v1:0";
    let received = sent_request(Provider::Bedrock, BEDROCK, request_to(model)).await;
    let line = "post /v1/model/us.amazon.nova-x-v1%3a0/converse ";
    assert!(received.head.starts_with(line), "{}", received.head);
    assert!(received.head.contains("authorization: bearer test-key\r\n"), "{}", received.head);
    let expected = json!({
        "system": [{"text": "Be brief."}, {"text": "Be kind."}],
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "inferenceConfig": {"temperature": 0.5, "topP": 0.9, "maxTokens": 7},
        "toolConfig": {
            "toolChoice": {"tool": {"name": "f"}},
            "tools": [
                {"toolSpec": {"name": "f", "description": "does f",
                    "inputSchema": {"json": {"type": "object", "properties": {}}}}},
                {"toolSpec": {"name": "g", "description": "does g",
                    "inputSchema": {"json": {"type": "object", "properties": {}}}}},
            ],
        },
    });
    assert_eq!(received.body, expected);
}

#[tokio::test]
async fn the_options_are_sent_in_the_fields_of_cohere() {
    let received = sent_request(Provider::Cohere, COHERE, request_to("command-x")).await;
    assert!(received.head.starts_with("post /v1/chat "), "{}", received.head);
    assert!(received.head.contains("authorization: bearer test-key\r\n"), "{}", received.head);
    let expected = json!({
        "model": "command-x",
        "stream": false,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"},
        ],
        "temperature": 0.5,
        "p": 0.9,
        "max_tokens": 7,
        "tool_choice": "REQUIRED",
        "tools": [{"type": "function", "function": {"name": "f", "description": "does f",
            "parameters": {"type": "object", "properties": {}}}}],
    });
    assert_eq!(received.body, expected);
}

#[tokio::test]
async fn the_options_are_sent_in_the_fields_of_ollama() {
    let mut options = options("qwen-x");
    options.tool_choice = None;
    options.extra.insert("think".to_owned(), json!(true));
    options.extra.insert("options".to_owned(), json!({"num_ctx": 8192, "top_p": null}));
    let received =
        sent_request(Provider::Ollama, OLLAMA, request_to("").with_options(options)).await;
    assert!(received.head.starts_with("post /v1/api/chat "), "{}", received.head);
    let expected = json!({
        "model": "qwen-x",
        "stream": false,
        "think": true,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"},
        ],
        "options": {"temperature": 0.5, "num_predict": 7, "num_ctx": 8192},
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "does f",
                "parameters": {"type": "object", "properties": {}}}},
            {"type": "function", "function": {"name": "g", "description": "does g",
                "parameters": {"type": "object", "properties": {}}}},
        ],
    });
    assert_eq!(received.body, expected);
}

#[tokio::test]
async fn a_tool_choice_that_a_provider_does_not_support_is_refused() {
    for (provider, choice) in [
        (Provider::Ollama, ToolChoice::Required),
        (Provider::Ollama, ToolChoice::Tool("f".to_owned())),
    ] {
        let server = Server::start([]).await;
        let mut options = options("m");
        options.tool_choice = Some(choice);
        let request = request_to("").with_options(options);
        let error = ask(&mut server.client(provider).build(), request).await.unwrap_err();
        let error = error.downcast::<ProviderError>().unwrap();
        assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{error}");
    }
}

/// Returns a message in the format of Bedrock's event stream.
fn event(headers: &[(&'static str, &'static str)], payload: &str) -> Vec<u8> {
    let header = |(name, value): &(&'static str, &'static str)| {
        Header::new(*name, HeaderValue::String((*value).into()))
    };
    let headers = headers.iter().map(header).collect();
    let message = StreamMessage::new_from_parts(headers, payload.as_bytes().to_vec());
    let mut bytes = Vec::new();
    write_message_to(&message, &mut bytes).unwrap();
    bytes
}

fn bedrock_stream(events: impl IntoIterator<Item = (&'static str, Value)>) -> Vec<u8> {
    let events = events.into_iter();
    events.flat_map(|(kind, data)| event(&[(":event-type", kind)], &data.to_string())).collect()
}

#[tokio::test]
async fn reasoning_and_calls_in_a_stream_of_bedrock_are_read() {
    let delta = |index: u64, delta: Value| {
        ("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}))
    };
    let reasoning = |field: &str, more: &str| json!({"reasoningContent": {field: more}});
    let start = json!({"toolUse": {"toolUseId": "t_1", "name": "f"}});
    let body = bedrock_stream([
        ("messageStart", json!({"role": "assistant"})),
        delta(0, reasoning("text", "Hm")),
        delta(0, reasoning("text", ".")),
        delta(0, reasoning("signature", "c2ln")),
        delta(1, json!({"text": "Let me see."})),
        ("contentBlockStart", json!({"contentBlockIndex": 2, "start": start})),
        delta(2, json!({"toolUse": {"input": "{\"x\": "}})),
        delta(2, json!({"toolUse": {"input": "1.0}"}})),
        ("contentBlockStop", json!({"contentBlockIndex": 2})),
        ("messageStop", json!({"stopReason": "tool_use"})),
        ("metadata", json!({"usage": {"inputTokens": 3, "outputTokens": 4}})),
    ]);
    let server = Server::start([Reply::stream(body), Reply::json(200, BEDROCK)]).await;
    let mut model = server.client(Provider::Bedrock).build();
    let answer = ask(&mut model, request_to("m").streamed()).await.unwrap();
    assert_eq!(answer.text(), "Let me see.");
    assert_eq!(answer.finish.usage.output_tokens, 4);
    assert_eq!(answer.tool_calls().next().unwrap().arguments, r#"{"x": 1.0}"#);
    let history = vec![Message::user("hi"), (*answer.messages[0]).clone()];
    ask(&mut model, ChatRequest::new(history).with_options(options("m"))).await.unwrap();
    let expected = json!([
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"text": "Let me see."},
        {"toolUse": {"toolUseId": "t_1", "name": "f", "input": {"x": 1.0}}},
    ]);
    assert_eq!(server.received()[1].body["messages"][1]["content"], expected);
}

#[tokio::test]
async fn an_exception_inside_bedrocks_stream_is_a_refusal() {
    let mut body = bedrock_stream([("messageStart", json!({"role": "assistant"}))]);
    let kind = (":exception-type", "throttlingException");
    body.extend(event(&[(":message-type", "exception"), kind], r#"{"message":"slow down"}"#));
    let server = Server::start([Reply::stream(body)]).await;
    let request = request_to("m").streamed();
    let error = ask(&mut server.client(Provider::Bedrock).build(), request).await.unwrap_err();
    let error = error.downcast::<ProviderError>().unwrap();
    assert_eq!(error.code(), Some("throttlingException"));
    assert!(error.to_string().ends_with(": slow down"), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn an_error_at_the_end_of_coheres_stream_is_a_refusal() {
    let end = json!({"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "oops"}});
    let server = Server::start([Reply::stream(format!("data: {end}\n\n"))]).await;
    let request = request_to("m").streamed();
    let error = ask(&mut server.client(Provider::Cohere).build(), request).await.unwrap_err();
    let error = error.downcast::<ProviderError>().unwrap();
    assert_eq!((error.code(), error.is_retryable()), (Some("ERROR"), true));
    assert!(error.to_string().ends_with(": oops"), "{error}");
}

#[tokio::test]
async fn a_damaged_message_in_bedrocks_stream_fails_the_call() {
    let mut body = bedrock_stream([
        ("messageStart", json!({"role": "assistant"})),
        ("messageStop", json!({"stopReason": "end_turn"})),
        ("metadata", json!({"usage": {"inputTokens": 5, "outputTokens": 6}})),
    ]);
    let last = body.len() - 7;
    body[last] ^= 1;
    let server = Server::start([Reply::stream(body)]).await;
    let request = request_to("m").streamed();
    let error = ask(&mut server.client(Provider::Bedrock).build(), request).await.unwrap_err();
    let error = error.downcast::<ProviderError>().unwrap();
    assert!(matches!(error.kind(), Kind::Malformed { .. }), "{error:?}");
    assert!(error.to_string().contains("checksum"), "{error}");
}
