//! The body of a request.

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatRequest, ToolChoice, ToolDefinition};

use super::{WIRE, turns::Conversation};
use crate::{
    anthropic::goes_on_without_thinking,
    body::BodyError,
    object::{Object, raw},
    text_parts::messages,
};

const CONFIG: &str = "inferenceConfig";
const MODEL_FIELDS: &str = "additionalModelRequestFields";

/// The fields of the request for an answer. The model is in the address.
///
/// `extra` options count more than named ones, and a `null` among them takes the field out; those
/// in `inferenceConfig` are counted one by one. The conversation is the request's own.
pub fn render_request(request: &ChatRequest) -> Result<Object, BodyError> {
    let asked = &*request.options;
    let mut config = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            config.insert(name.to_owned(), value);
        }
    };
    set("temperature", asked.temperature.map(Value::from));
    set("topP", asked.top_p.map(Value::from));
    set("maxTokens", asked.max_output_tokens.map(Value::from));
    let mut fields = Map::new();
    if let Some(tools) = tools(&asked.tools, asked.tool_choice.as_ref())? {
        fields.insert("toolConfig".to_owned(), tools);
    }
    for (name, value) in &asked.extra {
        match value {
            Value::Null => drop(fields.remove(name)),
            Value::Object(extra) if name == CONFIG => config.extend(extra.clone()),
            _ => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    config.retain(|_, value| !value.is_null());
    if !config.is_empty() {
        fields.insert(CONFIG.to_owned(), Value::Object(config));
    }
    if let Some(Value::Object(extra)) = fields.get_mut(MODEL_FIELDS)
        && extra.get("thinking").and_then(|thinking| thinking.get("type"))
            == Some(&json!("enabled"))
        && goes_on_without_thinking(request.messages.iter().map(|message| &**message), WIRE)
    {
        extra.remove("thinking");
    }
    let mut conversation = Conversation::default();
    for message in messages(request) {
        conversation.push(&message);
    }
    let mut body: Object = fields.iter().map(|(name, value)| (name.clone(), raw(value))).collect();
    body.remove("stream");
    if !conversation.system.is_empty() {
        body.insert("system".to_owned(), raw(&conversation.system));
    }
    body.insert("messages".to_owned(), raw(&conversation.messages()));
    Ok(body)
}

fn tools(
    tools: &[ToolDefinition],
    choice: Option<&ToolChoice>,
) -> Result<Option<Value>, BodyError> {
    if tools.is_empty() {
        return Ok(None);
    }
    let tools: Vec<Value> = tools.iter().map(render_tool).collect();
    let mut config = json!({"tools": tools});
    let choice = match choice {
        Some(ToolChoice::None) => {
            // History with calls needs the tools, and there is no word for "none of them".
            return Err(BodyError::Unsupported { what: "way to offer tools and allow none" });
        }
        Some(ToolChoice::Required) => json!({"any": {}}),
        Some(ToolChoice::Tool(name)) => json!({"tool": {"name": name}}),
        Some(ToolChoice::Auto) => json!({"auto": {}}),
        _ => return Ok(Some(config)),
    };
    if let Some(fields) = config.as_object_mut() {
        fields.insert("toolChoice".to_owned(), choice);
    }
    Ok(Some(config))
}

pub(crate) fn render_tool(definition: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, parameters, .. } = definition;
    // The service demands a schema of an object.
    let has_type = parameters.get("type").is_some();
    let schema = if has_type { parameters.clone() } else { json!({"type": "object"}) };
    let mut tool = json!({"name": name, "inputSchema": {"json": schema}});
    // It takes no empty one.
    if let (false, Some(fields)) = (description.is_empty(), tool.as_object_mut()) {
        fields.insert("description".to_owned(), json!(description));
    }
    json!({"toolSpec": tool})
}
