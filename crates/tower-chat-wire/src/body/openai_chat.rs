//! Reads and writes bodies of OpenAI Chat Completions.

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Finish, Message, Messages, Part, RawJson, ToolChoice, Usage,
};

use super::{
    BodyError,
    fields::{Fields, conversation_field, object_json, set},
    tool::ToolForm,
};
use crate::{
    finish_fields::put_usage,
    object::{Object, raw, text},
    openai_chat::{Audience, REASONS, WIRE, parse_messages, render_messages, usage},
};

pub(super) const TOOL: ToolForm = ToolForm {
    wire: WIRE,
    parameters: "parameters",
    is_nested: true,
    has_strict: true,
    usual_definition: || json!({"type": "function", "function": {}}),
};

pub(super) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let mut fields = Fields::of_body(body, &["messages"])?;
    let messages = conversation_field(body, "messages")?.filter(|json| json.get().starts_with('['));
    let messages =
        messages.ok_or(BodyError::Field { field: "messages", expected: "a JSON list" })?;
    let messages: Messages = parse_messages(messages.get())?.into_iter().collect();

    let mut options = ChatOptions::default();
    options.model = fields.take_text("model");
    options.temperature = fields.take_number("temperature");
    options.top_p = fields.take_number("top_p");
    options.max_output_tokens = fields.take_count("max_completion_tokens");
    if options.max_output_tokens.is_none() {
        options.max_output_tokens = fields.take_count("max_tokens");
    }
    let tools = fields.take_list("tools").unwrap_or_default();
    options.tools = tools.into_iter().map(|tool| TOOL.parse(tool)).collect();
    options.tool_choice = fields.take_as("tool_choice", tool_choice);
    options.stream = fields.take_flag("stream").unwrap_or_default();
    options.extra = fields.into_remaining();
    Ok(ChatRequest::new(messages).with_options(options))
}

pub(super) fn render_answer(message: &Message, finish: &Finish) -> RawJson {
    let message = answer_message(message);
    let has_calls = message.contains_key("tool_calls") || message.contains_key("function_call");
    let mut body = finish.metadata.clone();
    let mut choice = match body.remove("choice") {
        Some(Value::Object(choice)) => choice,
        _ => Map::new(),
    };
    let reason = REASONS.text(finish, choice.get("finish_reason"), has_calls);
    choice.insert("index".to_owned(), json!(0));
    choice.insert("finish_reason".to_owned(), json!(reason));
    let choices = raw(&[object_json(&choice, [("message", Some(raw(&message)))])]);
    body.insert("object".to_owned(), json!("chat.completion"));
    put_usage(&mut body, "usage", &finish.usage, usage, render_usage);
    set(&mut body, "model", finish.model.as_deref());
    object_json(&body, [("choices", Some(choices))])
}

/// Writes the message of an answer. Clients expect the fields `content` and `refusal`, even if they
/// are `null`.
fn answer_message(message: &Message) -> Object {
    let rendered = render_messages([message], Audience::Transcript);
    let rendered = rendered.iter().filter_map(|message| message.parse::<Object>().ok());
    let mut fields = rendered
        .into_iter()
        .find(|message| text(message, "role").is_some_and(|role| role == "assistant"))
        .unwrap_or_else(|| Object::from([("role".to_owned(), raw("assistant"))]));
    let content = fields.entry("content".to_owned()).or_insert_with(|| raw(&()));
    if let Some(text) = as_one_text(content) {
        *content = raw(&text);
    }
    let reasoning: String = message.parts.iter().filter_map(reasoning).collect();
    if !reasoning.is_empty() && !fields.contains_key("reasoning") {
        fields.entry("reasoning_content".to_owned()).or_insert_with(|| raw(&reasoning));
    }
    fields.entry("refusal".to_owned()).or_insert_with(|| raw(&()));
    fields
}

/// Joins a list of text parts to one text, because clients do not expect a list in an answer.
fn as_one_text(content: &RawJson) -> Option<String> {
    let parts: Vec<Object> = content.parse().ok()?;
    parts.iter().map(|part| text(part, "text")).collect()
}

fn reasoning(part: &Part) -> Option<&str> {
    match part {
        Part::Reasoning(reasoning) => Some(&reasoning.text),
        _ => None,
    }
}

fn tool_choice(choice: &Value) -> Option<ToolChoice> {
    match choice.as_str() {
        Some("auto") => return Some(ToolChoice::Auto),
        Some("none") => return Some(ToolChoice::None),
        Some("required") => return Some(ToolChoice::Required),
        Some(_) => return None,
        None => {}
    }
    let name = choice.pointer("/function/name")?.as_str()?;
    let choice = ToolChoice::Tool(name.to_owned());
    Some(choice)
}

/// Writes the usage object of Chat Completions.
fn render_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}
