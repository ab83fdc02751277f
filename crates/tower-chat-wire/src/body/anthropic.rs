//! Reads and writes bodies of Anthropic Messages.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Finish, Message, Messages, RawJson, ToolChoice, Usage,
};

use super::{
    BodyError,
    fields::{Fields, object_json, set},
    tool::ToolForm,
};
use crate::{
    anthropic::{REASONS, WIRE, parse_body, render_body, usage},
    finish_fields::put_usage,
    object::{Object, as_text, raw},
};

const TOOL: ToolForm = ToolForm {
    wire: WIRE,
    parameters: "input_schema",
    is_nested: false,
    has_strict: true,
    usual_definition: || json!({}),
};

pub(super) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let messages: Messages = parse_body(body)?.into_iter().collect();
    let mut fields = Fields::of_body(body, &["messages", "system"])?;

    let mut options = ChatOptions::default();
    options.model = fields.take_text("model");
    options.temperature = fields.take_number("temperature");
    options.top_p = fields.take_number("top_p");
    options.max_output_tokens = fields.take_count("max_tokens");
    let tools = fields.take_list("tools").unwrap_or_default();
    options.tools = tools.into_iter().map(|tool| TOOL.parse(tool)).collect();
    options.tool_choice = fields.take_as("tool_choice", tool_choice);
    options.stream = fields.take_flag("stream").unwrap_or_default();
    options.extra = fields.into_remaining();
    Ok(ChatRequest::new(messages).with_options(options))
}

pub(super) fn render_answer(message: &Message, finish: &Finish) -> RawJson {
    let conversation = render_body([message]);
    let content = conversation.messages.last().and_then(|message| message.parse::<Object>().ok());
    let content = content.and_then(|mut message| message.remove("content"));
    let content = match content.as_ref().map(as_text) {
        Some(Some(text)) => Some(raw(&json!([{"type": "text", "text": text}]))),
        Some(None) => content,
        None => Some(raw(&json!([]))),
    };
    let has_calls = message.calls().next().is_some();
    let mut body = finish.metadata.clone();
    let reason = REASONS.text(finish, body.get("stop_reason"), has_calls);
    body.entry("stop_sequence").or_insert(Value::Null);
    set(&mut body, "model", finish.model.as_deref());
    put_usage(&mut body, "usage", &finish.usage, usage, render_usage);
    set(&mut body, "type", Some("message"));
    set(&mut body, "role", Some("assistant"));
    set(&mut body, "stop_reason", Some(reason));
    object_json(&body, [("content", content)])
}

fn render_usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(usage.cached_input_tokens),
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    })
}

pub(super) fn render_tool(definition: &tower_chat_core::ToolDefinition) -> Option<Value> {
    let mut tool = TOOL.render(definition)?;
    if !definition.parameters.is_null() {
        // The service refuses a tool without a schema.
        let fields = tool.as_object_mut()?;
        fields.entry(TOOL.parameters).or_insert_with(|| json!({"type": "object"}));
    }
    Some(tool)
}

fn tool_choice(choice: &Value) -> Option<ToolChoice> {
    let fields = choice.as_object()?;
    let name = fields.get("name").and_then(Value::as_str);
    // A choice with other fields is not converted, so that these fields are not lost.
    match (fields.get("type")?.as_str()?, name, fields.len()) {
        ("auto", None, 1) => Some(ToolChoice::Auto),
        ("any", None, 1) => Some(ToolChoice::Required),
        ("none", None, 1) => Some(ToolChoice::None),
        ("tool", Some(name), 2) => Some(ToolChoice::Tool(name.to_owned())),
        _ => None,
    }
}
