//! Writes the body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, ToolChoice};

use super::{Unsigned, render_messages};
use crate::{
    body::{
        BodyWire,
        gemini::{FUNCTION, JSON_SCHEMA, render_tools},
        merge, set,
    },
    object::{Object, raw, to_object},
    rules::{ForeignRule, ServiceRules, fitted, foreign_rule, requires_signatures},
    text_parts::messages,
};

const CONFIG: &str = "generationConfig";

/// Returns the fields of a request body, with their values as JSON text. The URL of the request
/// names the model, and the body does not.
///
/// A field in the `extra` options replaces the field of a named option, and a `null` in `extra`
/// removes the field. `extra` can also contain the object `generationConfig`: each of its fields
/// replaces only the field of the same name. The conversation cannot be replaced.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// let body = tower_chat_wire::gemini::render_request(&ChatRequest::user("hi"), "gemini-2.5-flash");
/// assert_eq!(body["contents"].get(), r#"[{"role":"user","parts":[{"text":"hi"}]}]"#);
/// ```
pub fn render_request(request: &ChatRequest, model: &str) -> Object {
    let rules = || ServiceRules::choose(BodyWire::Gemini, "gemini", "", Some(model));
    render(&fitted(request, rules), Some(model))
}

/// Returns the fields of a request body. If `model` is `None`, a request that was read is written
/// unchanged. Otherwise, the schemas of tools that were not read from Gemini's JSON are written to
/// the field for full JSON Schema.
pub(crate) fn render(request: &ChatRequest, model: Option<&str>) -> Object {
    let options = &*request.options;
    let mut fields = Map::new();
    let schema_name = if model.is_some() { JSON_SCHEMA } else { FUNCTION.parameters };
    let tools = render_tools(&options.tools, schema_name);
    set(&mut fields, "tools", (!tools.is_empty()).then_some(tools));
    set(&mut fields, "toolConfig", options.tool_choice.as_ref().map(tool_choice));
    let mut config = config(options);
    let mut extra = options.extra.clone();
    for name in [CONFIG, "generation_config"] {
        if model.is_none() && name != CONFIG {
            continue;
        }
        match extra.remove(name) {
            Some(Value::Object(more)) => merge(&mut config, &more),
            Some(other) => drop(extra.insert(name.to_owned(), other)),
            None => {}
        }
    }
    set(&mut fields, CONFIG, (!config.is_empty()).then_some(config));
    merge(&mut fields, &extra);
    if !fields.contains_key("tools") {
        fields.remove("toolConfig");
    }

    let messages: Vec<_> = messages(request).collect();
    let requires_signatures = match foreign_rule(request) {
        Some(rule) => matches!(rule, ForeignRule::Signature(_)),
        None => model.is_some_and(requires_signatures),
    };
    let unsigned = if requires_signatures { Unsigned::StandIn } else { Unsigned::AsRecorded };
    let conversation = render_messages(messages.iter().map(|message| &**message), unsigned);
    let mut body = to_object(&fields, options);
    if let Some(system) = conversation.system_instruction {
        body.insert("systemInstruction".to_owned(), system);
    }
    body.insert("contents".to_owned(), raw(&conversation.contents));
    body
}

fn config(options: &ChatOptions) -> Map<String, Value> {
    let mut fields = Map::new();
    set(&mut fields, "temperature", options.temperature);
    set(&mut fields, "topP", options.top_p);
    set(&mut fields, "maxOutputTokens", options.max_output_tokens);
    fields
}

fn tool_choice(choice: &ToolChoice) -> Value {
    let config = match choice {
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
        _ => json!({"mode": "AUTO"}),
    };
    json!({"functionCallingConfig": config})
}
