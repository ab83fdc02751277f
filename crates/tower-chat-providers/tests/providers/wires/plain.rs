//! Simple readers of recorded messages, which share no code with the readers of `tower-chat-wire`.

use serde_json::{Value, json};
use tower_chat_core::{Message, Native, Part, Role, ToolCall, ToolResult};

/// Reads a message of Bedrock's Converse.
pub(crate) fn bedrock(message: &Value) -> Message {
    let blocks = message["content"].as_array().unwrap();
    let parts: Vec<Part> = blocks.iter().map(bedrock_block).collect();
    let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
    Message::new(role, parts)
}

pub(crate) fn bedrock_block(block: &Value) -> Part {
    let native =
        |block: &Value| Part::Native(Native::new("bedrock", block.to_string().parse().unwrap()));
    if let Some(text) = block["text"].as_str() {
        return Part::text(text);
    }
    // A call of another type is a call of a tool that the service runs.
    let is_call = |call: &&Value| call["type"].as_str().is_none_or(|kind| kind == "tool_use");
    if let Some(call) = block.get("toolUse").filter(is_call) {
        let (id, name) = (string(&call["toolUseId"]), string(&call["name"]));
        return ToolCall::new(id, name, call["input"].to_string()).into();
    }
    if let Some(found) = block.get("toolResult") {
        let mut result = ToolResult::new(string(&found["toolUseId"]), "");
        result.is_error = found["status"] == "error";
        let content = found["content"].as_array().unwrap();
        result.content = content.iter().map(bedrock_block).collect();
        return result.into();
    }
    native(block)
}

/// Reads a message in OpenAI's format, which Cohere and Ollama use as well.
pub(crate) fn chat(message: &Value) -> Message {
    let role = match message["role"].as_str().unwrap() {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => Role::User,
    };
    let text = text(message);
    if role == Role::Tool {
        let mut result = ToolResult::new("", text);
        result.call_id = message["tool_call_id"].as_str().map(str::to_owned);
        return Message::tool_results([result]);
    }
    let mut parts = Vec::new();
    if !text.is_empty() {
        parts.push(Part::text(text));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let arguments = match &function["arguments"] {
            Value::String(text) => text.clone(),
            object => object.to_string(),
        };
        let mut parsed = ToolCall::without_id(string(&function["name"]), arguments);
        parsed.id = call["id"].as_str().map(str::to_owned);
        parts.push(parsed.into());
    }
    Message::new(role, parts)
}

/// Returns the values of a message that tests compare: the role, the text, the calls, and the call
/// id of a result.
pub(crate) fn content_of(message: &Value) -> Value {
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let function = &call["function"];
        let arguments = match &function["arguments"] {
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            object => object.clone(),
        };
        json!([call["id"], function["name"], arguments])
    });
    let calls: Vec<Value> = calls.collect();
    json!({
        "role": message["role"],
        "text": text(message),
        "calls": calls,
        "answers": message["tool_call_id"],
    })
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(blocks) => blocks.iter().map(|block| string(&block["text"])).collect(),
        text => string(text),
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
