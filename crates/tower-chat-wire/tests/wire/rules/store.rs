//! Tests of answers that are stored, loaded, and sent back to the service that they came from.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat_core::{ChatRequest, Message, Part, RawJson, format};
use tower_chat_wire::{
    body::{AnswerContext, BodyWire},
    rules::ServiceRules,
};

use super::{body, rules};

/// Returns, for each wire, the body of an answer with native items, and the message or item that is
/// expected in the next request.
fn answers() -> Vec<(BodyWire, &'static str, Value, Value)> {
    let chat = json!({
        "role": "assistant", "content": "It is.", "reasoning_content": "Hm.",
        "tool_calls": [{"id": "D681PevKs", "type": "function", "index": 0,
            "function": {"name": "look", "arguments": "{\"a\": 1.50}"}}],
    });
    let anthropic = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "text", "text": "It is."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1.5}},
    ]);
    let bedrock = json!({"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"text": "It is."},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"a": 1.5}}},
        {"newBlock": {"b": 1}},
    ], "newField": 7});
    let cohere = json!({
        "role": "assistant", "tool_plan": "I look.", "newField": [1],
        "tool_calls": [{"id": "look_1", "type": "function",
            "function": {"name": "look", "arguments": "{\"a\": 1}"}}],
        "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "It is."}],
    });
    let ollama = json!({
        "role": "assistant", "content": "It is.", "thinking": "Hm.", "newField": {"b": 1},
        "tool_calls": [{"function": {"index": 0, "name": "look", "arguments": {"a": 1}}}],
    });
    let gemini = json!({"role": "model", "parts": [
        {"text": "Hm.", "thought": true},
        {"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
    ]});
    let choice = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": chat}]});
    vec![
        (BodyWire::OpenAiChat, "deepseek", choice, chat),
        (
            BodyWire::Anthropic,
            "anthropic",
            json!({"role": "assistant", "content": anthropic, "stop_reason": "tool_use"}),
            json!({"role": "assistant", "content": anthropic}),
        ),
        (
            BodyWire::BedrockConverse,
            "bedrock",
            json!({"output": {"message": bedrock}, "stopReason": "tool_use"}),
            bedrock,
        ),
        (
            BodyWire::Cohere,
            "cohere",
            json!({"message": cohere, "finish_reason": "TOOL_CALL"}),
            cohere,
        ),
        (BodyWire::Ollama, "ollama", json!({"message": ollama, "done": true}), ollama),
        (
            BodyWire::Gemini,
            "gemini",
            json!({"candidates": [{"content": gemini, "finishReason": "STOP"}]}),
            gemini,
        ),
    ]
}

fn read(wire: BodyWire, issuer: &Arc<str>, answer: &Value) -> Vec<Message> {
    let context = AnswerContext::default().with_issuer(Arc::clone(issuer));
    let answer = wire.parse_answer_to(&answer.to_string(), &context).unwrap();
    let messages = answer.messages.iter();
    // Encodes and decodes the messages like a store.
    messages.map(|message| format::decode(&format::encode(message)).unwrap()).collect()
}

/// Returns a request with an answer between two user messages. The request contains a result for
/// each call of the answer.
fn with_answer(answer: &[Message]) -> ChatRequest {
    let mut messages = vec![Message::user("Is it cold?")];
    messages.extend(answer.iter().cloned());
    let calls = answer.iter().flat_map(Message::calls);
    messages.push(Message::tool_results(calls.map(|call| call.answer("12 degrees"))));
    ChatRequest::new(messages)
}

fn answer_in(body: &Value) -> &Value {
    let list = ["messages", "contents"].iter().find_map(|field| body[field].as_array()).unwrap();
    let is_answer =
        |message: &&Value| matches!(message["role"].as_str(), Some("assistant" | "model"));
    list.iter().find(is_answer).unwrap()
}

#[test]
fn an_answer_is_sent_again_to_its_service_as_it_was_received() {
    for (wire, name, answer, expected) in answers() {
        let rules = rules(wire, name);
        let messages = read(wire, &rules.issuer, &answer);
        let natives = messages.iter().flat_map(|message| &message.parts);
        let issuers: Vec<_> = natives.filter_map(issuer).collect();
        assert!(!issuers.is_empty(), "{name}");
        assert!(issuers.iter().all(|issuer| *issuer == rules.issuer), "{name}");
        let sent = body(&with_answer(&messages), &rules);
        assert_eq!(answer_in(&sent), &expected, "{name}");
    }
}

fn issuer(part: &Part) -> Option<Arc<str>> {
    let native = match part {
        Part::Text(text) => text.native.as_ref(),
        Part::Reasoning(reasoning) => reasoning.native.as_ref(),
        Part::ToolCall(call) => call.native.as_ref(),
        Part::Native(native) => Some(native),
        _ => None,
    };
    native?.issuer.clone()
}

#[test]
fn native_items_are_sent_only_to_their_issuer_and_without_an_issuer_to_any_service() {
    for (wire, name, answer, _) in answers() {
        let own = rules(wire, name);
        let other = ServiceRules::unknown(wire, "llm.example.com");
        let marks = ["Hm.", "c2ln", "newField", "newBlock"];
        let has_items = |sent: &Value| {
            let text = sent.to_string();
            marks.iter().any(|mark| text.contains(mark))
        };
        let messages = read(wire, &own.issuer, &answer);
        let request = with_answer(&messages);
        assert!(has_items(&body(&request, &own)), "{name}");
        let sent = body(&request, &other);
        assert!(!has_items(&sent), "{name}: {sent:#}");
        assert!(sent.to_string().contains("look"), "{name}: {sent:#}");
        // An older version stored native items without an issuer.
        let older: Vec<Message> = messages
            .iter()
            .map(|message| {
                let stored = format::encode(message);
                let older = stored.replace(&format!(r#""issuer":"{}","#, own.issuer), "");
                assert_ne!(stored, older);
                format::decode(&older).unwrap()
            })
            .collect();
        let request = with_answer(&older);
        assert!(has_items(&body(&request, &other)), "{name}");
        assert_eq!(body(&request, &own), body(&with_answer(&messages), &own), "{name}");
    }
}

#[test]
fn claude_at_anthropic_vertex_and_bedrock_is_one_issuer() {
    let (_, _, answer, _) = answers().remove(1);
    let issuer = rules(BodyWire::Anthropic, "anthropic").issuer;
    let request = with_answer(&read(BodyWire::Anthropic, &issuer, &answer));
    for name in ["anthropic", "vertex", "bedrock"] {
        let sent = body(&request, &rules(BodyWire::Anthropic, name));
        assert_eq!(answer_in(&sent)["content"][0]["signature"], "c2ln", "{name}");
    }
    for name in ["minimax", "zai"] {
        let sent = body(&request, &rules(BodyWire::Anthropic, name)).to_string();
        assert!(!sent.contains("c2ln"), "{name}");
    }
}

#[test]
fn the_store_has_the_original_tool_name_and_the_wire_the_sent_name() {
    let original = "get weather";
    let call = tower_chat_core::ToolCall::new("D681PevKs", original, "{}");
    let history = ChatRequest::new(vec![
        Message::user("Is it cold?"),
        Message::tool_calls([call.clone()]),
        Message::tool_results([call.answer("12 degrees")]),
    ]);
    for (wire, name, answer, _) in answers() {
        let rules = rules(wire, name);
        let (fitted, _) = super::written(&history, &rules);
        let fitted_message = fitted.request.messages().get(1).unwrap();
        let sent = fitted_message.calls().next().unwrap().name.clone();
        assert_ne!(sent, original);
        let answer = answer.to_string().replace("\"look\"", &format!("{sent:?}"));
        let context = AnswerContext::default().with_changes(fitted.names, fitted.changes);
        let read = wire.parse_answer_to(&answer, &context).unwrap();
        let called: Vec<String> =
            read.messages.iter().flat_map(|it| it.calls().map(|it| it.name.clone())).collect();
        assert_eq!(called, [original], "{name}");
        assert!(!read.finish.changes.is_empty());
    }
}

#[test]
fn the_issuer_does_not_affect_the_equality_of_native_items() {
    let item: RawJson = "{}".parse().unwrap();
    let native = tower_chat_core::Native::new("cohere", item);
    assert_eq!(native.clone().issued_by("cohere"), native);
}
