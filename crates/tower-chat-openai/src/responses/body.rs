//! The body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, ToolChoice, ToolDefinition};
use tower_chat_wire::{
    body::BodyWire,
    openai_responses::{HistoryLocation, render_input},
};

use crate::{
    object::{Object, as_text, raw},
    options,
};

const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// How the names of OpenAI's models begin that do not reason. They refuse a request that asks for
/// encrypted reasoning: "Encrypted content is not supported with this model."
const WITHOUT_REASONING: [&str; 4] = ["gpt-3.5", "gpt-4", "gpt-5-chat", "chatgpt-"];

/// What a leaf adds to every request.
#[derive(Debug, Clone, Default)]
pub(super) struct Defaults {
    pub(super) model: Option<String>,
    /// Whether to ask for encrypted reasoning; by the model's name, if it was not said.
    pub(super) encrypted_reasoning: Option<bool>,
}

/// The body of the request for an answer.
///
/// The input, whether the answer is streamed, and where the history is, are the request's own,
/// whatever `extra` says.
pub(super) fn render(
    request: &ChatRequest,
    defaults: &Defaults,
    location: &HistoryLocation,
    is_streamed: bool,
) -> Object {
    let options = &*request.options;
    let mut body = options::fields(&named(options, defaults, location), options, is_streamed);
    let may_reason = || body.get("model").and_then(as_text).is_none_or(|model| may_reason(&model));
    if *location == HistoryLocation::Request
        && defaults.encrypted_reasoning.unwrap_or_else(may_reason)
    {
        include_reasoning(&mut body, options);
    }
    match location {
        HistoryLocation::AfterResponse(id) => {
            drop(body.insert("previous_response_id".to_owned(), raw(id)));
        }
        HistoryLocation::InConversation(id) => {
            drop(body.insert("conversation".to_owned(), raw(id)));
        }
        _ => {}
    }
    let input = render_input(request.messages.iter().map(|message| &**message));
    body.insert("input".to_owned(), raw(&input));
    body
}

/// Asks for the encrypted reasoning besides what else is to be included, unless it was said that
/// nothing is.
fn include_reasoning(body: &mut Object, options: &ChatOptions) {
    let mut include = match options.extra.get("include") {
        None => Vec::new(),
        Some(Value::Array(include)) => include.clone(),
        Some(_) => return,
    };
    if !include.iter().any(|what| what == ENCRYPTED_REASONING) {
        include.push(json!(ENCRYPTED_REASONING));
    }
    body.insert("include".to_owned(), raw(&include));
}

/// Whether a model may reason, by its name: `gpt-4o`, `openai/gpt-4o` and `ft:gpt-4o:mine` do not.
fn may_reason(model: &str) -> bool {
    let model = model.strip_prefix("ft:").unwrap_or(model);
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("openai.").unwrap_or(name);
    !WITHOUT_REASONING.iter().any(|start| name.starts_with(start))
}

fn named(
    options: &ChatOptions,
    defaults: &Defaults,
    location: &HistoryLocation,
) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    let model = options.model.as_ref().or(defaults.model.as_ref());
    set("model", model.cloned().map(Value::from));
    set("instructions", options.instructions.clone().map(Value::from));
    set("temperature", options.temperature.map(Value::from));
    set("top_p", options.top_p.map(Value::from));
    set("max_output_tokens", options.max_output_tokens.map(Value::from));
    set("tool_choice", options.tool_choice.as_ref().map(tool_choice));
    let tools: Vec<Value> = options.tools.iter().filter_map(tool).collect();
    set("tools", (!tools.is_empty()).then_some(Value::Array(tools)));
    set("background", options.background.then_some(Value::Bool(true)));
    // A background answer has to be stored to be fetched.
    set("store", Some(Value::Bool(*location != HistoryLocation::Request || options.background)));
    fields
}

/// The schema is taken as it is: the service would rewrite it, if it were not said that it is not
/// one of those that `strict` allows. A definition that came from this wire is sent as it came; one
/// that only another provider has, not at all.
fn tool(definition: &ToolDefinition) -> Option<Value> {
    if definition.native.is_some() {
        return BodyWire::OpenAiResponses.render_tool(definition);
    }
    let ToolDefinition { name, description, parameters, .. } = definition;
    let is_empty = parameters.as_object().is_some_and(Map::is_empty) || parameters.is_null();
    let none = || json!({"type": "object", "properties": {}});
    let parameters = if is_empty { none() } else { parameters.clone() };
    Some(json!({
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
        "strict": false,
    }))
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "name": name}),
        _ => json!("auto"),
    }
}
