//! Tests of request bodies that no recording contains.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Message, Native, Part, Reasoning, Role, ToolCall, ToolChoice,
    ToolDefinition, ToolResult,
};
use tower_chat_wire::body::BodyWire;

use crate::{
    client::Client,
    client::Provider,
    client::ask,
    server::{Received, Reply, Server},
};

const ANTHROPIC: &str = r#"{"role":"assistant","content":[{"type":"text","text":"ok"}]}"#;
const GEMINI: &str = r#"{"candidates":[{"content":{"parts":[{"text":"ok"}]}}]}"#;

async fn sent_request(provider: Provider, answer: &str, request: ChatRequest) -> Received {
    let server = Server::start([Reply::json(200, answer)]).await;
    ask(&mut server.client(provider).build(), request).await.unwrap();
    server.received().remove(0)
}

pub(crate) fn options(model: &str) -> ChatOptions {
    let mut options = ChatOptions::default();
    options.model = Some(model.to_owned());
    options.instructions = Some("Be brief.".to_owned());
    options.temperature = Some(0.5);
    options.top_p = Some(0.9);
    options.max_output_tokens = Some(7);
    options.tool_choice = Some(ToolChoice::Tool("f".to_owned()));
    let schema = json!({"type": "object", "properties": {}});
    options.tools = vec![
        ToolDefinition::new("f", "does f", schema),
        ToolDefinition::new("g", "does g", json!({})),
    ];
    options
}

pub(crate) fn request_to(model: &str) -> ChatRequest {
    let messages = [Message::system("Be kind."), Message::user("hi")];
    ChatRequest::new(messages).with_options(options(model))
}

#[tokio::test]
async fn the_options_are_sent_in_the_fields_of_anthropic() {
    let received = sent_request(Provider::Anthropic, ANTHROPIC, request_to("claude-x")).await;
    assert!(received.head.starts_with("post /v1/messages "), "{}", received.head);
    assert!(received.head.contains("x-api-key: test-key\r\n"), "{}", received.head);
    assert!(received.head.contains("anthropic-version: 2023-06-01\r\n"), "{}", received.head);
    let expected = json!({
        "model": "claude-x",
        "stream": false,
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "tool_choice": {"type": "tool", "name": "f"},
        "tools": [
            {"name": "f", "description": "does f",
                "input_schema": {"type": "object", "properties": {}}},
            {"name": "g", "description": "does g",
                "input_schema": {"type": "object", "properties": {}}},
        ],
    });
    assert_eq!(received.body, expected);
}

#[tokio::test]
async fn claude_in_vertex_is_called_at_the_address_of_its_model() {
    let received = sent_request(Provider::Vertex, ANTHROPIC, request_to("claude-x@1")).await;
    let line = "post /v1/publishers/anthropic/models/claude-x@1:rawpredict ";
    assert!(received.head.starts_with(line), "{}", received.head);
    assert!(received.head.contains("authorization: bearer test-key\r\n"), "{}", received.head);
    assert_eq!(received.body["anthropic_version"], "vertex-2023-10-16");
    assert_eq!(received.body.get("model"), None::<&Value>);
    assert_eq!(received.body["max_tokens"], 7);
}

#[tokio::test]
async fn the_options_are_sent_in_the_fields_of_gemini() {
    let mut options = options("gemini-x");
    options.extra.insert("generationConfig".to_owned(), json!({"topP": null, "seed": 3}));
    let request = request_to("").with_options(options);
    let received = sent_request(Provider::Gemini, GEMINI, request).await;
    let line = "post /v1/models/gemini-x:generatecontent ";
    assert!(received.head.starts_with(line), "{}", received.head);
    assert!(received.head.contains("x-goog-api-key: test-key\r\n"), "{}", received.head);
    let config = json!({"mode": "ANY", "allowedFunctionNames": ["f"]});
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 7, "seed": 3},
        "toolConfig": {"functionCallingConfig": config},
        "tools": [{"functionDeclarations": [
            {"name": "f", "description": "does f",
                "parametersJsonSchema": {"type": "object", "properties": {}}},
            {"name": "g", "description": "does g",
                "parametersJsonSchema": {"type": "object", "properties": {}}},
        ]}],
    });
    assert_eq!(received.body, expected);
}

#[tokio::test]
async fn tools_that_were_read_from_the_wire_are_sent_as_they_were() {
    let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 2});
    let marked = json!({"name": "h", "description": "does h", "input_schema": {"type": "object"},
        "cache_control": {"type": "ephemeral"}});
    let body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "search"}],
        "model": "claude-x", "tools": [search, marked]});
    let request = BodyWire::Anthropic.parse_request(body.clone()).unwrap();
    let received = sent_request(Provider::Anthropic, ANTHROPIC, request).await;
    assert_eq!(received.body["tools"], body["tools"]);

    let declared = json!({"name": "k", "description": "does k", "behavior": "BLOCKING",
        "parameters": {"type": "OBJECT", "properties": {"at": {"type": "STRING"}}}});
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "look it up"}]}],
        "tools": [{"googleSearch": {}}, {"functionDeclarations": [declared]}]});
    let mut request = BodyWire::Gemini.parse_request(body.clone()).unwrap();
    let mut options = (*request.options).clone();
    options.model = Some("gemini-x".to_owned());
    request.options = options.into();
    let received = sent_request(Provider::Gemini, GEMINI, request).await;
    assert_eq!(received.body["tools"], body["tools"]);
}

#[tokio::test]
async fn a_header_of_the_caller_replaces_the_default_header_of_the_same_name() {
    for (provider, model, answer) in [
        (Provider::Anthropic, "claude-x", ANTHROPIC),
        (Provider::Vertex, "claude-x", ANTHROPIC),
        (Provider::Gemini, "gemini-x", GEMINI),
    ] {
        let server = Server::start([Reply::json(200, answer)]).await;
        let client = server.client(provider).with_header("x-title", "tests");
        let mut client = client.with_header("anthropic-version", "2030-01-01").build();
        ask(&mut client, request_to(model)).await.unwrap();
        let head = &server.received()[0].head;
        assert!(head.contains("x-title: tests\r\n"), "{head}");
        assert!(head.contains("anthropic-version: 2030-01-01\r\n"), "{head}");
        assert!(!head.contains("2023-06-01"), "{head}");
    }
}

#[tokio::test]
async fn the_access_token_of_vertex_may_be_set_as_a_header() {
    for (model, answer) in [("gemini-x", GEMINI), ("claude-x", ANTHROPIC)] {
        let server = Server::start([Reply::json(200, answer)]).await;
        let client = Client::new(Provider::Vertex).with_base_url(&server.url);
        let mut client = client.with_header("authorization", "Bearer new").build();
        ask(&mut client, request_to(model)).await.unwrap();
        let head = &server.received()[0].head;
        assert_eq!(head.matches("authorization:").count(), 1, "{head}");
        assert!(head.contains("authorization: bearer new\r\n"), "{head}");
    }
}

#[tokio::test]
async fn claude_is_sent_a_default_token_limit_if_the_request_has_none() {
    for provider in [Provider::Anthropic, Provider::Vertex] {
        let mut options = options("claude-x");
        options.max_output_tokens = None;
        let received =
            sent_request(provider, ANTHROPIC, request_to("").with_options(options)).await;
        assert!(received.body["max_tokens"].as_u64() >= Some(4096), "{provider:?}");
    }
}

#[tokio::test]
async fn plain_texts_of_a_gemini_stream_are_joined_and_signed_parts_are_unchanged() {
    let part =
        |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
    let call = json!({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s2"});
    let mut events = vec![
        part(json!({"text": "Hm", "thought": true})),
        part(json!({"text": ".", "thought": true})),
        part(json!({"text": "on"})),
        part(json!({"text": "e"})),
        part(json!({"text": " two", "thoughtSignature": "s1"})),
        part(json!({"text": " three"})),
        part(call.clone()),
    ];
    events.push(json!({"candidates": [{"content": {"parts": [{"text": ""}]},
        "finishReason": "STOP"}]}));
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let server = Server::start([Reply::stream(stream), Reply::json(200, GEMINI)]).await;
    let mut model = server.client(Provider::Gemini).build();
    let answer = ask(&mut model, request_to("gemini-x").streamed()).await.unwrap();
    assert_eq!(answer.text(), "one two three");
    let history = vec![Message::user("hi"), (*answer.messages[0]).clone()];
    ask(&mut model, ChatRequest::new(history)).await.unwrap();
    let expected = json!([
        {"text": "Hm.", "thought": true},
        {"text": "one"},
        {"text": " two", "thoughtSignature": "s1"},
        {"text": " three"},
        call,
        {"text": ""},
    ]);
    assert_eq!(server.received()[1].body["contents"][1]["parts"], expected);
}

/// Returns a user message, an answer, and the result of its call. The answer has reasoning of this
/// wire, and calls a tool whose name providers do not accept.
fn round(wire: &str) -> [Message; 3] {
    let mut thought = Reasoning::new("hm");
    let item = r#"{"type":"thinking","signature":"sig"}"#;
    thought.native = Some(Native::new(wire, item.parse().unwrap()));
    let call = ToolCall::new("call_1", "files.read", "{}");
    let parts = vec![Part::Reasoning(thought), Part::ToolCall(call)];
    let results = Message::tool_results([ToolResult::new("call_1", "text")]);
    [Message::user("go"), Message::new(Role::Assistant, parts), results]
}

fn thinking(messages: impl IntoIterator<Item = Message>) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.model = Some("claude-x".to_owned());
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    options.extra.insert("thinking".to_owned(), thinking);
    ChatRequest::new(messages.into_iter().collect::<Vec<_>>()).with_options(options)
}

#[tokio::test]
async fn thinking_stays_enabled_when_anthropic_continues_its_own_round() {
    let received = sent_request(Provider::Anthropic, ANTHROPIC, thinking(round("anthropic"))).await;
    assert_eq!(received.body["thinking"]["type"], "enabled");
    let blocks = &received.body["messages"][1]["content"];
    assert_eq!(blocks[0], json!({"type": "thinking", "thinking": "hm", "signature": "sig"}));
    let name = blocks[1]["name"].as_str().unwrap();
    assert!(name.starts_with("files_read_") && !name.contains('.'), "{name}");
}

#[tokio::test]
async fn thinking_is_disabled_when_anthropic_continues_a_round_of_another_provider() {
    let foreign = round("gemini");
    let received = sent_request(Provider::Anthropic, ANTHROPIC, thinking(foreign.clone())).await;
    assert_eq!(received.body.get("thinking"), None::<&Value>);
    let blocks = received.body["messages"][1]["content"].as_array().unwrap();
    assert_eq!(blocks.len(), 1, "foreign reasoning is omitted: {blocks:?}");
    // In the next turn, the request may enable thinking again.
    let later = foreign.into_iter().chain([Message::assistant("done"), Message::user("more")]);
    let received = sent_request(Provider::Anthropic, ANTHROPIC, thinking(later)).await;
    assert_eq!(received.body["thinking"]["type"], "enabled");
}

#[tokio::test]
async fn gemini_3_is_sent_a_stand_in_signature_with_a_call_of_another_provider() {
    for (model, signed) in [("gemini-3-flash", true), ("gemini-2.5-flash", false)] {
        let mut options = ChatOptions::default();
        options.model = Some(model.to_owned());
        let request = ChatRequest::new(round("anthropic")).with_options(options);
        let received = sent_request(Provider::Gemini, GEMINI, request).await;
        let parts = received.body["contents"][1]["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 1, "foreign reasoning is omitted: {parts:?}");
        assert_eq!(parts[0].get("thoughtSignature").is_some(), signed, "{model}");
    }
}
