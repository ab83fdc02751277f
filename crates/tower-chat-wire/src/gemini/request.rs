//! The body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, RawJson, ToolChoice, ToolDefinition};

use super::{Unsigned, render_messages};
use crate::{
    names::with_acceptable_names,
    object::{Object, raw},
};

const CONFIG: &str = "generationConfig";

/// The fields of the request for an answer. The model is in the address.
///
/// Each is the text that is sent. `extra` options count more than named ones, and a `null` among them takes the field out; those
/// in `generationConfig` are counted one by one. The conversation is the request's own.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// let body = tower_chat_wire::gemini::render_request(&ChatRequest::user("hi"), "gemini-2.5-flash");
/// assert_eq!(body["contents"].get(), r#"[{"role":"user","parts":[{"text":"hi"}]}]"#);
/// ```
pub fn render_request(request: &ChatRequest, model: &str) -> Object {
    let options = &*request.options;
    let mut config = config(options);
    let mut fields = Map::new();
    let declarations: Vec<Value> = options.tools.iter().map(tool).collect();
    if !declarations.is_empty() {
        fields.insert("tools".to_owned(), json!([{"functionDeclarations": declarations}]));
    }
    if let Some(choice) = &options.tool_choice {
        fields.insert("toolConfig".to_owned(), tool_choice(choice));
    }
    for (name, value) in &options.extra {
        match value {
            Value::Null => drop(fields.remove(name)),
            Value::Object(extra) if name == CONFIG || name == "generation_config" => {
                config.extend(extra.clone());
            }
            _ => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    if !fields.contains_key("tools") {
        fields.remove("toolConfig");
    }
    config.retain(|_, value| !value.is_null());
    if !config.is_empty() {
        fields.insert(CONFIG.to_owned(), Value::Object(config));
    }

    let messages = with_acceptable_names(&request.messages, is_name_character);
    let unsigned = if wants_signatures(model) { Unsigned::StandIn } else { Unsigned::AsRecorded };
    let conversation = render_messages(messages.iter().map(|message| &**message), unsigned);
    let mut body: Object = fields.iter().map(|(name, value)| (name.clone(), raw(value))).collect();
    let instructions = options.instructions.as_deref();
    if let Some(system) = system(instructions, conversation.system_instruction) {
        body.insert("systemInstruction".to_owned(), system);
    }
    body.insert("contents".to_owned(), raw(&conversation.contents));
    body
}

/// Whether the model refuses calls without a thought signature: those from Gemini 3 on do.
fn wants_signatures(model: &str) -> bool {
    let Some((_, version)) = model.rsplit_once("gemini-") else { return false };
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    major.parse::<u32>().is_ok_and(|major| major >= 3)
}

/// What the name of a function is made of; the service refuses any other character.
fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.' | ':')
}

/// The instructions of this request, before those of the conversation.
fn system(instructions: Option<&str>, conversation: Option<RawJson>) -> Option<RawJson> {
    let Some(instructions) = instructions else { return conversation };
    let mut content: Object =
        conversation.and_then(|content| content.parse().ok()).unwrap_or_default();
    let mut parts = vec![raw(&json!({"text": instructions}))];
    if let Some(earlier) = content.remove("parts") {
        match earlier.parse::<Vec<RawJson>>() {
            Ok(list) => parts.extend(list),
            Err(_) => parts.push(earlier),
        }
    }
    content.insert("parts".to_owned(), raw(&parts));
    Some(raw(&content))
}

fn config(options: &ChatOptions) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("temperature", options.temperature.map(Value::from));
    set("topP", options.top_p.map(Value::from));
    set("maxOutputTokens", options.max_output_tokens.map(Value::from));
    fields
}

fn tool(definition: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, parameters, .. } = definition;
    let mut function = json!({"name": name, "description": description});
    // A function without parameters is one without this field.
    let is_empty = parameters.as_object().is_some_and(Map::is_empty) || parameters.is_null();
    if let (false, Some(fields)) = (is_empty, function.as_object_mut()) {
        fields.insert("parametersJsonSchema".to_owned(), parameters.clone());
    }
    function
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

#[cfg(test)]
mod tests {
    use super::wants_signatures;

    #[test]
    fn models_from_gemini_3_on_want_signatures() {
        for model in ["gemini-3-flash-preview", "models/gemini-3.1-pro", "gemini-10-pro"] {
            assert!(wants_signatures(model), "{model}");
        }
        for model in ["gemini-2.5-flash", "gemini-1.5-pro", "gemini-flash-latest", "gemma-3"] {
            assert!(!wants_signatures(model), "{model}");
        }
    }
}
