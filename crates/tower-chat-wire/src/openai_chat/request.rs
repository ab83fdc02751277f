//! Writes the body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, RawJson, ToolChoice};

use super::{Audience, render_messages, with_mistral_ids};
use crate::{
    body::{BodyWire, set},
    object::{Object, raw, to_object, to_value},
    request_fields::with_extra,
    rules::{ServiceRules, fitted},
    text_parts::messages,
};

/// The form in which a service expects a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestForm<'a> {
    /// The model of the request. `None` if the body does not name the model.
    pub model: Option<&'a str>,
    /// The name of the field with the maximum number of output tokens: `max_completion_tokens` or
    /// `max_tokens`.
    pub token_limit: &'a str,
    /// Whether call ids are converted with [`with_mistral_ids`].
    pub mistral_ids: bool,
}

/// Returns the fields of a request body, with their values as JSON text.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. The fields `messages` and `stream` cannot be replaced.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::openai_chat::{RequestForm, render_request};
/// let form =
///     RequestForm { model: Some("m"), token_limit: "max_tokens", mistral_ids: false };
/// let body = serde_json::to_string(&render_request(&ChatRequest::user("hi"), &form))?;
/// assert_eq!(body, r#"{"messages":[{"role":"user","content":"hi"}],"model":"m"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn render_request(request: &ChatRequest, form: &RequestForm<'_>) -> Object {
    let service = if form.mistral_ids { "mistral" } else { "" };
    let rules = || ServiceRules::choose(BodyWire::OpenAiChat, service, "", form.model);
    render(&fitted(request, rules), Some(form))
}

/// Returns the fields of a request body. If `form` is `None`, returns only the fields that the
/// request sets, so that a request that was read is written unchanged.
pub(crate) fn render(request: &ChatRequest, form: Option<&RequestForm<'_>>) -> Object {
    let options = &*request.options;
    let mut fields = with_extra(option_fields(options, form), options);
    if form.is_some() && !options.stream {
        fields.remove("stream");
        fields.remove("stream_options");
    }
    set(&mut fields, "stream", options.stream.then_some(true));
    let mut body = to_object(&fields, options);
    body.insert("messages".to_owned(), raw(&messages_of(request, form)));
    body
}

fn messages_of(request: &ChatRequest, form: Option<&RequestForm<'_>>) -> Vec<RawJson> {
    let messages: Vec<_> = messages(request).collect();
    let messages = render_messages(messages.iter().map(|message| &**message), Audience::Model);
    let Some(form) = form else { return messages };
    let messages = if form.mistral_ids { with_mistral_ids(messages) } else { messages };
    messages.iter().map(without_empty_fields).collect()
}

/// Removes empty fields from an assistant message, such as `"refusal": null` and
/// `"annotations": []`. Services send these fields in answers, and some services (Groq, Mistral)
/// refuse them in requests. An empty reasoning text is not removed, because DeepSeek requires it.
fn without_empty_fields(message: &RawJson) -> RawJson {
    let Ok(mut fields) = message.parse::<Object>() else { return message.clone() };
    if fields.get("role").is_none_or(|role| role.get() != r#""assistant""#) {
        return message.clone();
    }
    let before = fields.len();
    fields.retain(|name, value| match name.as_str() {
        "content" => true,
        "reasoning" | "reasoning_content" => value.get() != "null",
        _ => !is_empty_value(&to_value(value)),
    });
    if fields.len() == before { message.clone() } else { raw(&fields) }
}

/// Returns whether the value is `null`, zero or empty, or contains only such values.
fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty_value),
        Value::Object(fields) => fields.values().all(is_empty_value),
    }
}

fn option_fields(options: &ChatOptions, form: Option<&RequestForm<'_>>) -> Map<String, Value> {
    let mut fields = Map::new();
    set(&mut fields, "model", form.map_or(options.model.as_deref(), |form| form.model));
    set(&mut fields, "temperature", options.temperature);
    set(&mut fields, "top_p", options.top_p);
    let token_limit = form.map_or("max_completion_tokens", |form| form.token_limit);
    set(&mut fields, token_limit, options.max_output_tokens);
    set(&mut fields, "tool_choice", options.tool_choice.as_ref().map(tool_choice));
    let tool = |tool| BodyWire::OpenAiChat.render_tool(tool);
    let tools: Vec<Value> = options.tools.iter().filter_map(tool).collect();
    set(&mut fields, "tools", (!tools.is_empty()).then_some(tools));
    if form.is_some() {
        let usage = options.stream.then(|| json!({"include_usage": true}));
        set(&mut fields, "stream_options", usage);
    }
    fields
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
        _ => json!("auto"),
    }
}
