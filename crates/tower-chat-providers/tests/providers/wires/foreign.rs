//! Tests a history with answers of several providers. A request to a provider contains the
//! reasoning of this provider unchanged, and no reasoning of other providers.

use serde_json::json;
use tower_chat_core::{ChatOptions, ChatRequest, FinishReason, Message};

use crate::{
    client::Provider,
    client::ask,
    server::{Reply, Server},
};

/// Returns for each provider: a model, an answer with reasoning, and a text that only this
/// reasoning contains.
fn answers() -> [(Provider, &'static str, serde_json::Value, &'static str); 6] {
    [
        (
            Provider::Anthropic,
            "claude-x",
            json!({"role": "assistant", "stop_reason": "end_turn",
            "content": [{"type": "thinking", "thinking": "", "signature": "ANTHROPIC"},
                {"type": "redacted_thinking", "data": "ANTHROPIC"},
                {"type": "text", "text": "one"}]}),
            "ANTHROPIC",
        ),
        (
            Provider::Gemini,
            "gemini-x",
            json!({"candidates": [{"finishReason": "STOP", "content":
            {"role": "model", "parts": [{"text": "GEMINI", "thought": true},
                {"text": "two", "thoughtSignature": "GEMINI"}]}}]}),
            "GEMINI",
        ),
        (
            Provider::Bedrock,
            "claude-x",
            json!({"stopReason": "end_turn", "output": {"message":
            {"role": "assistant", "content": [{"reasoningContent": {"redactedContent": "BEDROCK"}},
                {"text": "three"}]}}}),
            "BEDROCK",
        ),
        (
            Provider::Cohere,
            "command-x",
            json!({"finish_reason": "COMPLETE", "message":
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "COHERE"},
                {"type": "text", "text": "four"}]}}),
            "COHERE",
        ),
        (
            Provider::Ollama,
            "qwen-x",
            json!({"done": true, "done_reason": "stop", "message":
            {"role": "assistant", "thinking": "OLLAMA", "content": "five"}}),
            "OLLAMA",
        ),
        (
            Provider::DeepSeek,
            "deepseek-x",
            json!({"choices": [{"index": 0,
            "finish_reason": "stop", "message": {"role": "assistant", "content": "six",
                "reasoning_content": "DEEPSEEK"}}]}),
            "DEEPSEEK",
        ),
    ]
}

fn request_to(model: &str, messages: Vec<Message>) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.model = Some(model.to_owned());
    ChatRequest::new(messages).with_options(options)
}

#[tokio::test]
async fn reasoning_is_sent_only_to_the_provider_that_created_it() {
    let mut history = Vec::new();
    for (provider, model, answer, _) in answers() {
        history.push(Message::user("go on"));
        let server = Server::start([Reply::json(200, answer.to_string())]).await;
        let request = request_to(model, history.clone());
        let answer = ask(&mut server.client(provider).build(), request).await.unwrap();
        assert_eq!(answer.finish.reason, Some(FinishReason::Stop), "{provider:?}");
        history.push((*answer.messages[0]).clone());
    }
    history.push(Message::user("go on"));
    for (provider, model, answer, own) in answers() {
        let server = Server::start([Reply::json(200, answer.to_string())]).await;
        let request = request_to(model, history.clone());
        ask(&mut server.client(provider).build(), request).await.unwrap();
        let sent = server.received()[0].body.to_string();
        for (_, _, _, mark) in answers() {
            let count = if mark == own { answer.to_string().matches(mark).count() } else { 0 };
            assert_eq!(sent.matches(mark).count(), count, "{mark} to {provider:?}: {sent}");
        }
        for text in ["one", "two", "three", "four", "five", "six"] {
            assert!(sent.contains(&format!("\"{text}\"")), "{provider:?}: {sent}");
        }
    }
}

#[tokio::test]
async fn a_call_that_the_token_limit_cuts_off_is_returned_as_it_was_received() {
    let events = [
        json!({"type": "message_start", "message": {"role": "assistant"}}),
        json!({"type": "content_block_start", "index": 0, "content_block":
            {"type": "tool_use", "id": "t_1", "name": "f", "input": {}}}),
        json!({"type": "content_block_delta", "index": 0, "delta":
            {"type": "input_json_delta", "partial_json": "{\"x\": \"y"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}),
        json!({"type": "message_stop"}),
    ];
    let events = events
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    let server = Server::start([Reply::stream(events.concat())]).await;
    let request = request_to("claude-x", vec![Message::user("hi")]).streamed();
    let answer = ask(&mut server.client(Provider::Anthropic).build(), request).await.unwrap();
    assert_eq!(answer.finish.reason, Some(FinishReason::Length));
    assert_eq!(answer.tool_calls().next().unwrap().arguments, "{\"x\": \"y");
}
