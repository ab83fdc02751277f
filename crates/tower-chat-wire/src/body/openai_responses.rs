//! Reads and writes bodies of OpenAI Responses.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Finish, FinishReason, Message, Messages, RawJson, ToolChoice, Usage,
};

use super::{
    BodyError,
    fields::{Fields, conversation_field, object_json, set},
    tool::ToolForm,
};
use crate::{
    finish_fields::put_usage,
    object::{Object, raw, text},
    openai_responses::{WIRE, parse_input, render_input, usage},
};

pub(super) const TOOL: ToolForm = ToolForm {
    wire: WIRE,
    parameters: "parameters",
    is_nested: false,
    has_strict: true,
    usual_definition: || json!({"type": "function"}),
};

pub(super) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let mut fields = Fields::of_body(body, &["input"])?;
    let input = conversation_field(body, "input")?;
    let input = input.ok_or(BodyError::Field { field: "input", expected: "a text or a list" })?;
    let messages: Messages = parse_input(input.get())?.into_iter().collect();

    let mut options = ChatOptions::default();
    options.instructions = fields.take_text("instructions");
    options.model = fields.take_text("model");
    options.temperature = fields.take_number("temperature");
    options.top_p = fields.take_number("top_p");
    options.max_output_tokens = fields.take_count("max_output_tokens");
    let tools = fields.take_list("tools").unwrap_or_default();
    options.tools = tools.into_iter().map(|tool| TOOL.parse(tool)).collect();
    options.tool_choice = fields.take_as("tool_choice", tool_choice);
    options.stream = fields.take_flag("stream").unwrap_or_default();
    options.background = fields.take_flag("background").unwrap_or_default();
    let service_id = fields.take_text("previous_response_id");
    let service_id = service_id.or_else(|| fields.take_as("conversation", conversation));
    options.extra = fields.into_remaining();
    let request = ChatRequest::new(messages).with_options(options);
    Ok(match service_id {
        Some(id) => request.with_service_id(id),
        None => request,
    })
}

pub(super) fn render_answer(message: &Message, finish: &Finish) -> RawJson {
    let cut = match &finish.reason {
        Some(FinishReason::Length) => Some("max_output_tokens"),
        Some(FinishReason::ContentFilter) => Some("content_filter"),
        _ => None,
    };
    let mut body = finish.metadata.clone();
    set(&mut body, "model", finish.model.as_deref());
    // A usage without `total_tokens` was received from an API with other field names.
    if body.get("usage").is_some_and(|usage| usage.get("total_tokens").is_none()) {
        body.remove("usage");
    }
    put_usage(&mut body, "usage", &finish.usage, usage, render_usage);
    let output: Vec<RawJson> = render_input([message]).into_iter().map(output_item).collect();
    let fields = json!({
        "object": "response",
        "status": if cut.is_some() { "incomplete" } else { "completed" },
        "incomplete_details": cut.map(|reason| json!({"reason": reason})),
        "error": null,
    });
    if let Value::Object(fields) = fields {
        body.extend(fields);
    }
    object_json(&body, [("output", Some(raw(&output)))])
}

fn render_usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens(),
    })
}

/// Adds to a message item the fields that messages in answers must have, and messages in requests
/// may omit.
fn output_item(item: RawJson) -> RawJson {
    let Ok(mut fields) = item.parse::<Object>() else { return item };
    if !fields.contains_key("role") {
        return item;
    }
    fields.entry("type".to_owned()).or_insert_with(|| raw("message"));
    fields.entry("status".to_owned()).or_insert_with(|| raw("completed"));
    if let Some(text) = text(&fields, "content") {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        fields.insert("content".to_owned(), raw(&content));
    }
    raw(&fields)
}

fn conversation(value: &Value) -> Option<String> {
    let id = value.as_str().or_else(|| value.get("id")?.as_str())?;
    Some(id.to_owned())
}

fn tool_choice(choice: &Value) -> Option<ToolChoice> {
    match choice.as_str() {
        Some("auto") => return Some(ToolChoice::Auto),
        Some("none") => return Some(ToolChoice::None),
        Some("required") => return Some(ToolChoice::Required),
        Some(_) => return None,
        None => {}
    }
    let is_function = choice.get("type")?.as_str()? == "function";
    let name = choice.get("name")?.as_str()?;
    is_function.then(|| ToolChoice::Tool(name.to_owned()))
}
