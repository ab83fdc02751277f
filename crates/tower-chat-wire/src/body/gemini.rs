//! Bodies of Gemini's `generateContent`.

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, Finish, Message, Messages, Native, RawJson, ToolChoice,
    ToolDefinition, Usage,
};

use super::{
    BodyError, as_json,
    fields::{Fields, merge, set, whole},
    tool::Form,
    value, with_instructions,
};
use crate::{
    finish_fields::put_usage,
    gemini::{REASONS, Unsigned, WIRE, parse_body, render_messages, usage},
    object::{Object, raw, text},
};

const FUNCTION: Form =
    Form { wire: WIRE, parameters: "parameters", is_nested: false, plain: || json!({}) };

/// The field of a tool that lists functions; any other tool is run by the service.
const FUNCTIONS: &str = "functionDeclarations";

pub(super) fn parse_request(body: &str) -> Result<ChatRequest, BodyError> {
    let messages: Messages = parse_body(body)?.into_iter().collect();
    let conversation = ["contents", "systemInstruction", "system_instruction"];
    let mut fields = Fields::of_body(body, &conversation)?;

    let mut options = ChatOptions::default();
    if let Some(config) = fields.take_as("generationConfig", |it| it.as_object().cloned()) {
        let mut config = Fields::of_object(config);
        options.temperature = config.number("temperature");
        options.top_p = config.number("topP");
        options.max_output_tokens = config.count("maxOutputTokens");
        let rest = config.rest();
        if !rest.is_empty() {
            fields.put("generationConfig", Value::Object(rest));
        }
    }
    let tools = fields.list("tools").unwrap_or_default();
    options.tools = tools.into_iter().flat_map(parse_tool).collect();
    options.tool_choice = fields.take_as("toolConfig", tool_choice);
    options.extra = fields.rest();
    Ok(ChatRequest::new(messages).with_options(options))
}

pub(super) fn render_request(request: &ChatRequest) -> RawJson {
    let options = &*request.options;
    let mut body = Map::new();
    let mut config = Map::new();
    set(&mut config, "temperature", options.temperature);
    set(&mut config, "topP", options.top_p);
    set(&mut config, "maxOutputTokens", options.max_output_tokens);
    let mut extra = options.extra.clone();
    if let Some(Value::Object(more)) = extra.remove("generationConfig") {
        merge(&mut config, &more);
    }
    set(&mut body, "generationConfig", (!config.is_empty()).then_some(config));
    let tools = render_tools(&options.tools);
    let has_tools = !tools.is_empty();
    set(&mut body, "tools", has_tools.then_some(tools));
    let choice = options.tool_choice.as_ref().filter(|_| has_tools);
    set(&mut body, "toolConfig", choice.map(render_tool_choice));
    merge(&mut body, &extra);
    let messages = with_instructions(request);
    let messages = messages.iter().map(|message| &**message);
    let written = render_messages(messages, Unsigned::AsRecorded);
    let contents = Some(raw(&written.contents));
    whole(&body, [("systemInstruction", written.system_instruction), ("contents", contents)])
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
    let candidates = Some(raw(&[whole(&candidate, [("content", Some(content))])]));
    set(&mut body, "modelVersion", finish.model.as_deref());
    put_usage(&mut body, "usageMetadata", &finish.usage, usage, render_usage);
    whole(&body, [("candidates", candidates)])
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

/// One definition for each function, and one for each tool of the service beside them.
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
    let schema = function.get("parametersJsonSchema").cloned();
    let mut definition = FUNCTION.parse(function);
    // Its native item keeps the schema under the name it came with.
    if let Some(schema) = schema {
        definition.parameters = schema;
    }
    definition
}

pub(super) fn render_tools(definitions: &[ToolDefinition]) -> Vec<Value> {
    let mut functions = Vec::new();
    let mut tools = Vec::new();
    // All functions are one tool, in the place of the first.
    let mut place = 0;
    for definition in definitions {
        if definition.parameters.is_null() {
            let native = definition.native.as_ref().filter(|native| &*native.wire == WIRE);
            tools.extend(native.map(|native| value(&native.item)));
        } else if let Some(mut function) = FUNCTION.render(definition) {
            if let Some(fields) = function.as_object_mut()
                && fields.contains_key("parametersJsonSchema")
                && let Some(schema) = fields.remove(FUNCTION.parameters)
            {
                fields.insert("parametersJsonSchema".to_owned(), schema);
            }
            if functions.is_empty() {
                place = tools.len();
            }
            functions.push(function);
        }
    }
    if !functions.is_empty() {
        tools.insert(place, json!({FUNCTIONS: functions}));
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

fn render_tool_choice(choice: &ToolChoice) -> Value {
    let calling = match choice {
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
        _ => json!({"mode": "AUTO"}),
    };
    json!({"functionCallingConfig": calling})
}
