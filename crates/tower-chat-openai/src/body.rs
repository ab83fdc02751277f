//! The body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, RawJson, ToolChoice};
use tower_chat_wire::{
    body::BodyWire,
    openai_chat::{Audience, render_messages, with_nine_character_ids},
};

use crate::{
    object::{Object, raw, to_value},
    options,
};

/// What a leaf adds to every request.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    pub(crate) model: Option<String>,
    /// The field that limits the answer's tokens.
    pub(crate) token_limit: &'static str,
    /// The service takes only ids of nine letters and digits.
    pub(crate) nine_character_ids: bool,
}

/// The body of the request for an answer.
///
/// The messages, and whether the answer is streamed, are the request's own, whatever `extra` says.
pub(crate) fn render(request: &ChatRequest, defaults: &Defaults) -> Object {
    let options = &*request.options;
    let mut body = options::fields(&named(options, defaults), options, options.stream);
    body.insert("messages".to_owned(), raw(&messages(request, defaults)));
    body
}

fn messages(request: &ChatRequest, defaults: &Defaults) -> Vec<RawJson> {
    let instructions = request.options.instructions.as_ref();
    let instructions = instructions.map(|text| raw(&json!({"role": "system", "content": text})));
    let messages = request.messages.iter().map(|message| &**message);
    let mut messages = render_messages(messages, Audience::Model);
    if defaults.nine_character_ids {
        messages = with_nine_character_ids(messages);
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

fn named(options: &ChatOptions, defaults: &Defaults) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("model", options.model.clone().or_else(|| defaults.model.clone()).map(Value::from));
    set("temperature", options.temperature.map(Value::from));
    set("top_p", options.top_p.map(Value::from));
    set(defaults.token_limit, options.max_output_tokens.map(Value::from));
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
