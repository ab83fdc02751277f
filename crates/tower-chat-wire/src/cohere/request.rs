//! The body of a request.

use serde_json::Value;
use tower_chat_core::{ChatRequest, ToolChoice, ToolDefinition};

use super::message;
use crate::{
    object::{Object, raw},
    text_parts::{function, messages},
};

/// The fields of the request for an answer.
///
/// `extra` options count more than named ones, and a `null` among them takes the field out. The
/// conversation is the request's own.
pub fn render_request(request: &ChatRequest, model: &str) -> Object {
    let asked = &*request.options;
    let mut body = Object::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), raw(&value));
        }
    };
    set("temperature", asked.temperature.map(Value::from));
    set("p", asked.top_p.map(Value::from));
    set("max_tokens", asked.max_output_tokens.map(Value::from));
    // A tool cannot be chosen by name: it is the only one that is offered.
    let (choice, only) = match &asked.tool_choice {
        Some(ToolChoice::None) => (Some("NONE"), None),
        Some(ToolChoice::Required) => (Some("REQUIRED"), None),
        Some(ToolChoice::Tool(name)) => (Some("REQUIRED"), Some(name)),
        _ => (None, None),
    };
    let is_offered = |tool: &&ToolDefinition| only.is_none_or(|only| *only == tool.name);
    let tools: Vec<Value> = asked.tools.iter().filter(is_offered).map(function).collect();
    if !tools.is_empty() {
        set("tools", Some(Value::Array(tools)));
        set("tool_choice", choice.map(Value::from));
    }
    for (name, value) in &asked.extra {
        if value.is_null() {
            body.remove(name);
        } else {
            body.insert(name.clone(), raw(value));
        }
    }
    body.insert("model".to_owned(), raw(model));
    body.insert("stream".to_owned(), raw(&asked.stream));
    body.insert("messages".to_owned(), raw(&message::render(messages(request))));
    body
}
