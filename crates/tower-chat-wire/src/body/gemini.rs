//! Reads and writes bodies of Gemini's `generateContent`.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Finish, Message, Messages, Native, RawJson, ToolChoice,
    ToolDefinition, Usage,
};

use super::{
    BodyError, as_json,
    fields::{Fields, object_json, set},
    tool::ToolForm,
    value,
};
use crate::{
    finish_fields::put_usage,
    gemini::{REASONS, Unsigned, WIRE, parse_body, render_messages, usage},
    object::{Object, raw, text},
};

/// The name of the field for the schema of a function in full JSON Schema. The field `parameters`
/// supports only a subset of JSON Schema.
pub(crate) const JSON_SCHEMA: &str = "parametersJsonSchema";

pub(crate) const FUNCTION: ToolForm = ToolForm {
    wire: WIRE,
    parameters: "parameters",
    is_nested: false,
    has_strict: false,
    usual_definition: || json!({}),
};

/// The name of the field that contains the functions that the client runs, in an entry of `tools`.
/// Each other field of an entry is a tool that the service runs.
const FUNCTIONS: &str = "functionDeclarations";

pub(super) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let messages: Messages = parse_body(body)?.into_iter().collect();
    let conversation = ["contents", "systemInstruction", "system_instruction"];
    let mut fields = Fields::of_body(body, &conversation)?;

    let mut options = ChatOptions::default();
    if let Some(config) = fields.take_as("generationConfig", |it| it.as_object().cloned()) {
        let mut config = Fields::of_object(config);
        options.temperature = config.take_number("temperature");
        options.top_p = config.take_number("topP");
        options.max_output_tokens = config.take_count("maxOutputTokens");
        let rest = config.into_remaining();
        if !rest.is_empty() {
            fields.put("generationConfig", Value::Object(rest));
        }
    }
    let tools = fields.take_list("tools").unwrap_or_default();
    options.tools = tools.into_iter().flat_map(parse_tool).collect();
    options.tool_choice = fields.take_as("toolConfig", tool_choice);
    options.extra = fields.into_remaining();
    Ok(ChatRequest::new(messages).with_options(options))
}

pub(super) fn render_answer(message: &Message, finish: &Finish) -> RawJson {
    let written = render_messages([message], Unsigned::AsRecorded);
    let content = written.contents.into_iter().find(|content| {
        let fields = content.parse::<Object>();
        fields.is_ok_and(|fields| text(&fields, "role").is_some_and(|role| role == "model"))
    });
    let mut body = finish.metadata.clone();
    let mut candidate = match body.remove("candidate") {
        Some(Value::Object(candidate)) => candidate,
        _ => Map::new(),
    };
    let has_calls = message.calls().next().is_some();
    let reason = REASONS.text(finish, candidate.get("finishReason"), has_calls);
    candidate.insert("index".to_owned(), json!(0));
    let empty = || json!({"role": "model", "parts": []});
    candidate.insert("finishReason".to_owned(), json!(reason));
    let content = content.unwrap_or_else(|| raw(&empty()));
    let candidates = Some(raw(&[object_json(&candidate, [("content", Some(content))])]));
    set(&mut body, "modelVersion", finish.model.as_deref());
    put_usage(&mut body, "usageMetadata", &finish.usage, usage, render_usage);
    object_json(&body, [("candidates", candidates)])
}

fn render_usage(usage: &Usage) -> Value {
    json!({
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_input_tokens,
        "candidatesTokenCount": usage.output_tokens.saturating_sub(usage.reasoning_tokens),
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens(),
    })
}

/// Reads an entry of `tools`, which can define several tools.
fn parse_tool(tool: Value) -> Vec<ToolDefinition> {
    let Value::Object(fields) = tool else { return Vec::new() };
    let mut definitions = Vec::new();
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
        match value {
            Value::Array(functions) if name == FUNCTIONS => {
                definitions.extend(functions.into_iter().map(parse_function));
            }
            value => {
                let native = Native::new(WIRE, as_json(&json!({name.as_str(): value})));
                let definition = ToolDefinition::new(name, "", Value::Null);
                definitions.push(definition.with_native(native));
            }
        }
    }
    definitions
}

fn parse_function(function: Value) -> ToolDefinition {
    let schema = function.get(JSON_SCHEMA).cloned();
    let mut definition = FUNCTION.parse(function);
    // The field remains in the native item, so that the schema is written to it again.
    if let Some(schema) = schema {
        definition.parameters = schema;
    }
    definition
}

/// Writes the entries of `tools`. `schema_name` is the field for the schema of a tool that was not
/// read from this wire: `parameters` or [`JSON_SCHEMA`].
pub(crate) fn render_tools(definitions: &[ToolDefinition], schema_name: &str) -> Vec<Value> {
    let mut functions = Vec::new();
    let mut tools = Vec::new();
    // One entry of the list contains all functions, at the position of the first function.
    let mut index = 0;
    for definition in definitions {
        let native = definition.native.as_ref();
        if let (Some(native), true) = (native, definition.parameters.is_null()) {
            tools.extend((&*native.wire == WIRE).then(|| value(&native.item)));
        } else if let Some(mut function) = FUNCTION.render(definition) {
            let is_own = native.is_some_and(|native| &*native.wire == WIRE);
            if let Some(fields) = function.as_object_mut()
                && (fields.contains_key(JSON_SCHEMA) || !is_own && schema_name == JSON_SCHEMA)
                && let Some(schema) = fields.remove(FUNCTION.parameters)
            {
                fields.insert(JSON_SCHEMA.to_owned(), schema);
            }
            if functions.is_empty() {
                index = tools.len();
            }
            functions.push(function);
        }
    }
    if !functions.is_empty() {
        tools.insert(index, json!({FUNCTIONS: functions}));
    }
    tools
}

fn tool_choice(config: &Value) -> Option<ToolChoice> {
    let fields = config.as_object().filter(|fields| fields.len() == 1)?;
    let calling = fields.get("functionCallingConfig")?.as_object()?;
    let names = calling.get("allowedFunctionNames");
    let name = names.and_then(Value::as_array).map(Vec::as_slice);
    match (calling.get("mode")?.as_str()?, name, calling.len()) {
        ("AUTO", None, 1) => Some(ToolChoice::Auto),
        ("NONE", None, 1) => Some(ToolChoice::None),
        ("ANY", None, 1) => Some(ToolChoice::Required),
        ("ANY", Some([name]), 2) => Some(ToolChoice::Tool(name.as_str()?.to_owned())),
        _ => None,
    }
}
