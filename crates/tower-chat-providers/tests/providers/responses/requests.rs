//! Tests of the bodies of requests.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, ChatResponse, Message, ToolCall, ToolChoice, ToolDefinition,
    ToolResult,
};
use tower_chat_providers::{OpenAiResponses, ProviderError, ReqwestTransport};
use tower_service::Service;

use super::{response, text_response};
use crate::{
    client::ask,
    server::{Received, Reply, Server},
};

async fn sent_request<S>(model: impl Fn(&str) -> S, request: ChatRequest) -> Received
where
    S: Service<ChatRequest, Response = ChatResponse, Error = ProviderError>,
{
    let server = Server::start([Reply::json(200, text_response("resp_1", "ok").to_string())]).await;
    ask(&mut model(&server.url), request).await.unwrap();
    server.received().remove(0)
}

fn compatible(url: &str) -> OpenAiResponses<ReqwestTransport> {
    OpenAiResponses::compatible(url).unwrap()
}

fn options() -> ChatOptions {
    let mut options = ChatOptions::default();
    options.instructions = Some("Be brief.".to_owned());
    options.temperature = Some(0.5);
    options.top_p = Some(0.9);
    options.max_output_tokens = Some(7);
    options.tool_choice = Some(ToolChoice::Tool("f".to_owned()));
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
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
    assert!(received.head.starts_with("post /v1/responses http/1.1"), "{}", received.head);
    assert!(!received.head.contains("authorization"), "{}", received.head);
    assert_eq!(
        received.body,
        json!({
            "model": "m",
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "hi"}],
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 7,
            "tool_choice": {"type": "function", "name": "f"},
            "tools": [
                {"type": "function", "name": "f", "description": "does f", "strict": false,
                    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                {"type": "function", "name": "g", "description": "does g", "strict": false,
                    "parameters": {"type": "object", "properties": {}}},
            ],
        })
    );
}

#[tokio::test]
async fn extra_fields_override_options_but_not_the_input() {
    let mut options = options();
    options.tools.clear();
    options.stream = true;
    let extra = json!({"top_p": null, "temperature": 1, "reasoning": {"effort": "low"},
        "input": [], "stream": false, "include": ["message.output_text.logprobs"]});
    options.extra = extra.as_object().unwrap().clone();
    let server = Server::start([Reply::stream("")]).await;
    let request = ChatRequest::user("hi").with_options(options.clone());
    ask(&mut server.responses(), request).await.unwrap_err();
    assert_eq!(
        server.received()[0].body,
        json!({
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "hi"}],
            "store": false,
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
            "reasoning": {"effort": "low"},
            "temperature": 1,
            "max_output_tokens": 7,
            "stream": true,
        })
    );
    options.extra = json!({"include": null, "store": null}).as_object().unwrap().clone();
    options.stream = false;
    let received = sent_request(compatible, ChatRequest::user("hi").with_options(options)).await;
    assert_eq!(received.body.get("include"), None::<&Value>);
    assert_eq!(received.body.get("store"), None::<&Value>);
}

#[tokio::test]
async fn encrypted_reasoning_is_requested_only_from_reasoning_models_unless_it_is_set() {
    let asks = async |model: &dyn Fn(&str) -> OpenAiResponses<ReqwestTransport>| {
        let received = sent_request(model, ChatRequest::user("hi")).await;
        received.body.get("include").is_some()
    };
    let named = ["gpt-4o", "gpt-4.1-mini", "openai/gpt-4o", "ft:gpt-4o:x", "gpt-5-chat-latest"];
    for model in named {
        assert!(!asks(&|url| compatible(url).with_model(model)).await, "{model}");
        let client = |url: &str| compatible(url).with_model(model).with_encrypted_reasoning(true);
        assert!(asks(&client).await, "{model}");
    }
    for model in ["gpt-5-mini", "o4-mini", "grok-4.3", "openai.gpt-5.5", "my-deployment"] {
        assert!(asks(&|url| compatible(url).with_model(model)).await, "{model}");
        let client = |url: &str| compatible(url).with_model(model).with_encrypted_reasoning(false);
        assert!(!asks(&client).await, "{model}");
    }
}

#[tokio::test]
async fn an_answer_is_sent_again_byte_for_byte_with_its_ids_phases_and_reasoning() {
    // These items contain unusual numbers and white space, and have an unusual order of fields.
    let items = [
        r#"{"summary":[{"type":"summary_text","text":"hm"}],"type":"reasoning","id":"rs_1","encrypted_content":"gAAA","x":1.0}"#,
        r#"{"id":"msg_1","type":"message","phase":"commentary","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Let me look.","annotations":[],"logprobs":[]}]}"#,
        r#"{"id":"rs_2","type":"reasoning","summary":[]}"#,
        r#"{"id":"fc_1","type":"function_call","status":"completed","arguments":"{ \"x\" : 1e2 }","call_id":"call_1","name":"f"}"#,
    ];
    let body = json!({"id": "resp_1", "output": []}).to_string();
    let body = body.replace("[]", &format!("[{}]", items.join(",")));
    let server = Server::start([
        Reply::json(200, body),
        Reply::json(200, text_response("resp_2", "ok").to_string()),
    ])
    .await;
    let mut model = server.responses();
    let first = ask(&mut model, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(first.text(), "Let me look.");
    let history = [
        Message::user("hi"),
        (*first.messages[0]).clone(),
        Message::tool_results([ToolResult::new("call_1", "12")]),
    ];
    ask(&mut model, ChatRequest::new(history)).await.unwrap();
    let input = server.received()[1].body["input"].as_array().unwrap().clone();
    let items = items.map(|item| serde_json::from_str::<Value>(item).unwrap());
    assert_eq!(input[1..5], items);
    assert_eq!(
        input[5],
        json!({"type": "function_call_output", "call_id": "call_1", "output": "12"})
    );
}

#[tokio::test]
async fn the_history_of_another_wire_is_sent_without_reasoning() {
    let mut reasoning = tower_chat_core::Reasoning::new("hm");
    let item = r#"{"type":"thinking","signature":"s"}"#.parse().unwrap();
    reasoning.native = Some(tower_chat_core::Native::new("anthropic", item));
    let mut call = Message::tool_calls([ToolCall::new("toolu_1", "f", "{}")]);
    call.parts.insert(0, tower_chat_core::Part::Reasoning(reasoning));
    let history =
        [Message::user("hi"), call, Message::tool_results([ToolResult::new("toolu_1", "12")])];
    let received = sent_request(compatible, ChatRequest::new(history)).await;
    assert_eq!(
        received.body["input"],
        json!([
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "toolu_1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "toolu_1", "output": "12"},
        ])
    );
}

#[tokio::test]
async fn keys_and_headers_are_sent_and_omitted_from_the_debug_output() {
    let model = |url: &str| {
        let model = OpenAiResponses::compatible(&format!("{url}/")).unwrap();
        let model = model.with_key("sk-secret").unwrap();
        let model = model.with_header("chatgpt-account-id", "secret-account").unwrap();
        assert!(!format!("{model:?}").contains("secret"), "{model:?}");
        model
    };
    let received = sent_request(model, ChatRequest::user("hi")).await;
    assert!(received.head.starts_with("post /v1/responses "), "{}", received.head);
    assert!(received.head.contains("authorization: bearer sk-secret\r\n"), "{}", received.head);
    let account = "chatgpt-account-id: secret-account\r\n";
    assert!(received.head.contains(account), "{}", received.head);
}

#[tokio::test]
async fn azure_is_called_at_the_address_of_its_v1_api() {
    let model = |url: &str| {
        let transport = ReqwestTransport::new().unwrap();
        let model = OpenAiResponses::azure(url.trim_end_matches("/v1"), transport);
        let model = model.with_key("azure-key").unwrap();
        assert!(!format!("{model:?}").contains("azure-key"), "{model:?}");
        model.with_model("deployment")
    };
    let received = sent_request(model, ChatRequest::user("hi")).await;
    assert!(received.head.starts_with("post /openai/v1/responses "), "{}", received.head);
    assert!(received.head.contains("api-key: azure-key\r\n"), "{}", received.head);
    assert!(!received.head.contains("authorization"), "{}", received.head);
    assert_eq!(received.body["model"], "deployment");
}

#[tokio::test]
async fn an_answer_without_items_is_an_answer_without_messages() {
    let server = Server::start([Reply::json(200, response("resp_1", json!([])).to_string())]).await;
    let answer = ask(&mut server.responses(), ChatRequest::user("hi")).await.unwrap();
    assert!(answer.messages.is_empty());
    assert_eq!(answer.finish.usage.output_tokens, 4);
}
