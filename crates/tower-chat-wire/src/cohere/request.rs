//! Reads and writes the body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, Messages, ToolChoice, ToolDefinition};

use super::{WIRE, parse_messages, render_messages};
use crate::{
    body::{BodyError, BodyWire, Fields, ToolForm, conversation_field, merge, set},
    object::{Object, raw, to_object},
    rules::{ServiceRules, fitted},
    text_parts::messages,
};

pub(crate) const TOOL: ToolForm = ToolForm {
    wire: WIRE,
    parameters: "parameters",
    is_nested: true,
    has_strict: false,
    usual_definition: || json!({"type": "function", "function": {}}),
};

/// Reads the body of a request.
pub(crate) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let expected = "a JSON list";
    let missing = BodyError::Field { field: "messages", expected };
    let list = conversation_field(body, "messages")?.ok_or(missing)?;
    let read: Messages = parse_messages(list.get())?.into_iter().collect();
    let mut fields = Fields::of_body(body, &["messages"])?;
    let mut options = ChatOptions::default();
    options.model = fields.take_text("model");
    options.temperature = fields.take_number("temperature");
    options.top_p = fields.take_number("p");
    options.max_output_tokens = fields.take_count("max_tokens");
    let tools = fields.take_list("tools").unwrap_or_default();
    options.tools = tools.into_iter().map(|tool| TOOL.parse(tool)).collect();
    options.tool_choice = fields.take_as("tool_choice", |choice| match choice.as_str()? {
        "NONE" => Some(ToolChoice::None),
        "REQUIRED" => Some(ToolChoice::Required),
        _ => None,
    });
    let stream = fields.take_flag("stream");
    options.stream = stream.unwrap_or_default();
    options.extra = fields.into_remaining();
    if stream.is_none() {
        options.extra.insert("stream".to_owned(), Value::Null);
    }
    Ok(ChatRequest::new(read).with_options(options))
}

/// Returns the fields of a request body, with their values as JSON text.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. The fields `messages`, `model` and `stream` cannot be replaced.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::cohere::render_request;
/// let body = render_request(&ChatRequest::user("hi"), "command-a-03-2025");
/// assert_eq!(body["messages"].get(), r#"[{"content":"hi","role":"user"}]"#);
/// ```
pub fn render_request(request: &ChatRequest, model: &str) -> Object {
    let rules = || ServiceRules::choose(BodyWire::Cohere, "cohere", "", Some(model));
    render(&fitted(request, rules), model)
}

/// Returns the fields of a request body, without applying the rules of a service to the request.
pub(crate) fn render(request: &ChatRequest, model: &str) -> Object {
    let asked = &*request.options;
    let mut fields = Map::new();
    set(&mut fields, "temperature", asked.temperature);
    set(&mut fields, "p", asked.top_p);
    set(&mut fields, "max_tokens", asked.max_output_tokens);
    // Cohere's API cannot choose a tool by name: only this tool is sent, and a call is required.
    let (choice, only) = match &asked.tool_choice {
        Some(ToolChoice::None) => (Some("NONE"), None),
        Some(ToolChoice::Required) => (Some("REQUIRED"), None),
        Some(ToolChoice::Tool(name)) => (Some("REQUIRED"), Some(name)),
        _ => (None, None),
    };
    let is_offered = |tool: &&ToolDefinition| only.is_none_or(|only| *only == tool.name);
    let tools = asked.tools.iter().filter(is_offered);
    let tools: Vec<Value> = tools.filter_map(|tool| TOOL.render(tool)).collect();
    if !tools.is_empty() {
        set(&mut fields, "tools", Some(tools));
        set(&mut fields, "tool_choice", choice);
    }
    merge(&mut fields, &asked.extra);
    set(&mut fields, "model", Some(model));
    // If a request was read without the field `stream`, `extra` contains a `null` for this field.
    let is_unnamed = !asked.stream && asked.extra.get("stream").is_some_and(Value::is_null);
    set(&mut fields, "stream", (!is_unnamed).then_some(asked.stream));
    let messages: Vec<_> = messages(request).collect();
    let messages = render_messages(messages.iter().map(|message| &**message));
    let mut body = to_object(&fields, asked);
    body.insert("messages".to_owned(), raw(&messages));
    body
}
