//! Tests of the bodies of requests.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, ChatResponse, Message, ToolCall, ToolChoice, ToolDefinition,
    ToolResult,
};
use tower_chat_providers::{OpenAiChat, ProviderError, ReqwestTransport};
use tower_service::Service;

use crate::{
    client::ask,
    server::{Received, Reply, Server},
};

const ANSWER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"ok",
    "refusal":null,"annotations":[]}}]}"#;

async fn sent_request<S>(model: impl Fn(&str) -> S, request: ChatRequest) -> Received
where
    S: Service<ChatRequest, Response = ChatResponse, Error = ProviderError>,
{
    let server = Server::start([Reply::json(200, ANSWER)]).await;
    ask(&mut model(&server.url), request).await.unwrap();
    server.received().remove(0)
}

fn compatible(url: &str) -> OpenAiChat<ReqwestTransport> {
    OpenAiChat::compatible(url).unwrap()
}

fn options() -> ChatOptions {
    let mut options = ChatOptions::default();
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

#[tokio::test]
async fn the_options_become_the_fields_of_the_body() {
    let request = ChatRequest::user("hi").with_options(options());
    let received = sent_request(|url| compatible(url).with_model("m"), request).await;
    assert!(received.head.starts_with("post /v1/chat/completions http/1.1"), "{}", received.head);
    assert!(!received.head.contains("authorization"), "{}", received.head);
    assert_eq!(
        received.body,
        json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "hi"},
            ],
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "tools": [
                {"type": "function", "function": {"name": "f", "description": "does f",
                    "parameters": {"type": "object", "properties": {}}}},
                {"type": "function", "function": {"name": "g", "description": "does g",
                    "parameters": {"type": "object", "properties": {}}}},
            ],
        })
    );
}

#[tokio::test]
async fn extra_fields_override_options_but_not_the_messages() {
    let mut options = options();
    options.model = Some("n".to_owned());
    options.stream = true;
    options.tools.clear();
    let extra =
        json!({"top_p": null, "temperature": 1, "seed": 3, "messages": [], "stream": false});
    options.extra = extra.as_object().unwrap().clone();
    let server = Server::start([Reply::stream("data: [DONE]\n\n")]).await;
    let request = ChatRequest::user("hi").with_options(options);
    ask(&mut server.model().with_model("m"), request).await.unwrap_err();
    assert_eq!(
        server.received()[0].body,
        json!({
            "model": "n",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "hi"},
            ],
            "temperature": 1,
            "max_tokens": 7,
            "seed": 3,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[tokio::test]
async fn an_answer_is_sent_again_without_its_empty_fields() {
    let server = Server::start([Reply::json(200, ANSWER), Reply::json(200, ANSWER)]).await;
    let mut model = server.model();
    let first = ask(&mut model, ChatRequest::user("hi")).await.unwrap();
    let history = [Message::user("hi"), (*first.messages[0]).clone(), Message::user("more")];
    ask(&mut model, ChatRequest::new(history)).await.unwrap();
    let messages = &server.received()[1].body["messages"];
    assert_eq!(messages[1], json!({"role": "assistant", "content": "ok"}));
}

#[tokio::test]
async fn keys_and_headers_are_sent_and_omitted_from_the_debug_output() {
    let model = |url: &str| {
        let model = OpenAiChat::compatible(&format!("{url}/")).unwrap();
        let model = model.with_key("sk-secret").unwrap();
        let model = model.with_header("X-Title", "tests-secret").unwrap();
        assert!(!format!("{model:?}").contains("secret"), "{model:?}");
        model
    };
    let received = sent_request(model, ChatRequest::user("hi")).await;
    assert!(received.head.starts_with("post /v1/chat/completions "), "{}", received.head);
    assert!(received.head.contains("authorization: bearer sk-secret\r\n"), "{}", received.head);
    assert!(received.head.contains("x-title: tests-secret\r\n"), "{}", received.head);
}

#[tokio::test]
async fn azure_is_called_at_the_address_of_its_deployment() {
    let model = |url: &str| {
        let endpoint = url.trim_end_matches("/v1");
        let transport = ReqwestTransport::new().unwrap();
        OpenAiChat::azure(endpoint, "mine", "2025-01-01", transport).with_key("azure-key").unwrap()
    };
    let mut options = ChatOptions::default();
    options.max_output_tokens = Some(7);
    let received = sent_request(model, ChatRequest::user("hi").with_options(options)).await;
    let line = "post /openai/deployments/mine/chat/completions?api-version=2025-01-01 ";
    assert!(received.head.starts_with(line), "{}", received.head);
    assert!(received.head.contains("api-key: azure-key\r\n"), "{}", received.head);
    assert_eq!(received.body["max_completion_tokens"], json!(7));
    assert_eq!(received.body.get("model"), None::<&Value>);
}

#[tokio::test]
async fn foreign_call_ids_become_nine_characters_long_with_the_option_for_mistral_ids() {
    let history = || {
        ChatRequest::new([
            Message::user("hi"),
            Message::tool_calls([ToolCall::new("call_elsewhere", "f", "{}")]),
            Message::tool_results([ToolResult::new("call_elsewhere", "done")]),
        ])
    };
    let received = sent_request(compatible, history()).await;
    assert_eq!(received.body["messages"][2]["tool_call_id"], "call_elsewhere");
    let received = sent_request(|url| compatible(url).with_mistral_ids(), history()).await;
    let messages = &received.body["messages"];
    let id = messages[2]["tool_call_id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(messages[1]["tool_calls"][0]["id"], id);
}
