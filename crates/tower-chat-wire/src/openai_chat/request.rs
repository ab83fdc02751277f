//! The body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, RawJson, ToolChoice};

use super::{Audience, render_messages, with_mistral_ids};
use crate::{
    body::BodyWire,
    object::{Object, raw, to_value},
    request_fields,
};

/// In which form a service takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestForm<'a> {
    /// The model that is asked, if the body names one.
    pub model: Option<&'a str>,
    /// The field that limits the tokens of the answer: `max_completion_tokens` or `max_tokens`.
    pub token_limit: &'a str,
    /// The service takes only ids of calls that are [nine letters and
    /// digits](with_mistral_ids).
    pub mistral_ids: bool,
}

/// The fields of the request for an answer, each as the text that is sent.
///
/// `extra` options count more than named ones, and a `null` among them takes the field out. The
/// messages, and whether the answer is streamed, are the request's own.
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
    let options = &*request.options;
    let mut body = request_fields::render(&named(options, form), options, options.stream);
    body.insert("messages".to_owned(), raw(&messages(request, form)));
    body
}

fn messages(request: &ChatRequest, form: &RequestForm<'_>) -> Vec<RawJson> {
    let instructions = request.options.instructions.as_ref();
    let instructions = instructions.map(|text| raw(&json!({"role": "system", "content": text})));
    let messages = request.messages.iter().map(|message| &**message);
    let mut messages = render_messages(messages, Audience::Model);
    if form.mistral_ids {
        messages = with_mistral_ids(messages);
    }
    instructions.into_iter().chain(messages.iter().map(without_empty_fields)).collect()
}

/// The message without the fields in which an answer said nothing, such as `"refusal": null` and
/// `"annotations": []`: strict services (Groq, Mistral) refuse fields that they do not know.
/// Empty reasoning stays: DeepSeek asks for it again.
fn without_empty_fields(message: &RawJson) -> RawJson {
    let Ok(mut fields) = message.parse::<Object>() else { return message.clone() };
    if fields.get("role").is_none_or(|role| role.get() != r#""assistant""#) {
        return message.clone();
    }
    let before = fields.len();
    fields.retain(|name, value| match name.as_str() {
        "content" => true,
        "reasoning" | "reasoning_content" => value.get() != "null",
        _ => !says_nothing(&to_value(value)),
    });
    if fields.len() == before { message.clone() } else { raw(&fields) }
}

/// Whether it is empty, or holds nothing that is not.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(says_nothing),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}

fn named(options: &ChatOptions, form: &RequestForm<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("model", form.model.map(Value::from));
    set("temperature", options.temperature.map(Value::from));
    set("top_p", options.top_p.map(Value::from));
    set(form.token_limit, options.max_output_tokens.map(Value::from));
    set("tool_choice", options.tool_choice.as_ref().map(tool_choice));
    let tool = |tool| BodyWire::OpenAiChat.render_tool(tool);
    let tools: Vec<Value> = options.tools.iter().filter_map(tool).collect();
    set("tools", (!tools.is_empty()).then_some(Value::Array(tools)));
    set("stream_options", options.stream.then(|| json!({"include_usage": true})));
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
