//! The body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, RawJson, ToolChoice, ToolDefinition};

use super::{WIRE, goes_on_without_thinking, most_tokens::most_tokens, render_body};
use crate::{
    names::with_acceptable_names,
    object::{Object, raw, text},
};

/// In which form a service takes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestForm<'a> {
    /// Anthropic, whose body names the model.
    Anthropic {
        /// The model that is asked.
        model: &'a str,
    },
    /// Vertex AI, which has the model in the address and the version of the API in the body
    /// (<https://docs.claude.com/en/api/claude-on-vertex-ai>).
    Vertex,
}

/// The version of the API in Vertex AI.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// The most tokens of an answer in Vertex AI where the request names no number: the service demands
/// one, and every Claude can write this many.
const VERTEX_TOKENS: u64 = 4096;

/// The fields of the request for an answer, each as the text that is sent.
///
/// `extra` options count more than named ones, and a `null` among them takes the field out; but
/// the conversation is the request's own. The service demands `max_tokens`: where the request names
/// no number, it is the most that the model can write.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_wire::anthropic::{RequestForm, render_request};
/// let form = RequestForm::Anthropic { model: "claude-opus-4-5" };
/// let body = render_request(&ChatRequest::user("hi").streamed(), form);
/// assert_eq!((body["max_tokens"].get(), body["stream"].get()), ("64000", "true"));
/// ```
pub fn render_request(request: &ChatRequest, form: RequestForm<'_>) -> Object {
    let (model, tokens) = match form {
        RequestForm::Anthropic { model } => (Some(model), most_tokens(model)),
        RequestForm::Vertex => (None, VERTEX_TOKENS),
    };
    let mut body = render(request, model);
    body.entry("max_tokens".to_owned()).or_insert_with(|| raw(&tokens));
    let is_streamed = request.options.stream;
    match form {
        RequestForm::Anthropic { .. } => {
            body.insert("stream".to_owned(), raw(&is_streamed));
        }
        RequestForm::Vertex => {
            body.entry("anthropic_version".to_owned()).or_insert_with(|| raw(VERTEX_VERSION));
            if is_streamed {
                body.insert("stream".to_owned(), raw(&true));
            }
        }
    }
    body
}

/// The fields that every service takes; `model` where it belongs in the body.
fn render(request: &ChatRequest, model: Option<&str>) -> Object {
    let options = &*request.options;
    let mut body = Object::new();
    for (name, value) in named(options, model).iter().chain(&options.extra) {
        if value.is_null() {
            body.remove(name);
        } else {
            body.insert(name.clone(), raw(value));
        }
    }
    if !body.contains_key("tools") {
        body.remove("tool_choice");
    }
    body.remove("stream");
    let thinking = body.get("thinking").and_then(|thinking| thinking.parse::<Object>().ok());
    if thinking.is_some_and(|fields| text(&fields, "type").is_some_and(|kind| kind == "enabled"))
        && goes_on_without_thinking(request.messages.iter().map(|message| &**message), WIRE)
    {
        body.remove("thinking");
    }
    let messages = with_acceptable_names(&request.messages, is_name_character);
    let conversation = render_body(messages.iter().map(|message| &**message));
    if let Some(system) = system(options.instructions.as_deref(), conversation.system) {
        body.insert("system".to_owned(), system);
    }
    body.insert("messages".to_owned(), raw(&conversation.messages));
    body
}

/// What the name of a tool is made of; the service refuses any other character.
fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// The instructions of this request, before those of the conversation.
fn system(instructions: Option<&str>, conversation: Option<RawJson>) -> Option<RawJson> {
    let Some(instructions) = instructions else { return conversation };
    let Some(conversation) = conversation else { return Some(raw(instructions)) };
    let block = |text: &RawJson| {
        raw(&Object::from([("type".to_owned(), raw("text")), ("text".to_owned(), text.clone())]))
    };
    let mut blocks = vec![block(&raw(instructions))];
    match conversation.parse::<Vec<RawJson>>() {
        Ok(list) => blocks.extend(list),
        Err(_) => blocks.push(block(&conversation)),
    }
    Some(raw(&blocks))
}

fn named(options: &ChatOptions, model: Option<&str>) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("model", model.map(Value::from));
    set("temperature", options.temperature.map(Value::from));
    set("top_p", options.top_p.map(Value::from));
    set("max_tokens", options.max_output_tokens.map(Value::from));
    set("tool_choice", options.tool_choice.as_ref().map(tool_choice));
    let tools: Vec<Value> = options.tools.iter().map(tool).collect();
    set("tools", (!tools.is_empty()).then_some(Value::Array(tools)));
    fields
}

fn tool(definition: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, parameters, .. } = definition;
    // The service demands a schema of an object.
    let has_type = parameters.get("type").is_some();
    let schema = if has_type { parameters.clone() } else { json!({"type": "object"}) };
    json!({"name": name, "description": description, "input_schema": schema})
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
        _ => json!({"type": "auto"}),
    }
}
