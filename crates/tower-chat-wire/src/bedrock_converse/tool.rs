//! Reads and writes definitions of tools, and the tool choice.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use serde_json::{Map, Value, json};
use tower_chat_core::{Native, ToolChoice, ToolDefinition};

use super::WIRE;
use crate::{body::BodyError, object::raw};

const SPEC: &str = "toolSpec";
const SCHEMA: &str = "inputSchema";

/// Reads the definition of a tool. An entry in another form, such as a cache point, becomes a
/// native item.
pub(super) fn parse(tool: Value) -> ToolDefinition {
    let known = tool.as_object().filter(|fields| fields.len() == 1);
    let spec = known.and_then(|fields| fields.get(SPEC)?.as_object().cloned());
    if let Some(definition) = spec.and_then(parse_spec) {
        return definition;
    }
    let name = tool.as_object().and_then(|fields| fields.keys().next().cloned());
    let definition = ToolDefinition::new(name.unwrap_or_default(), "", Value::Null);
    definition.with_native(Native::new(WIRE, raw(&tool)))
}

fn parse_spec(mut spec: Map<String, Value>) -> Option<ToolDefinition> {
    let name = spec.remove("name")?.as_str()?.to_owned();
    let mut schema = spec.remove(SCHEMA)?;
    let inner = schema.as_object_mut().filter(|fields| fields.len() == 1)?;
    let parameters = inner.remove("json").filter(|schema| schema.get("type").is_some())?;
    let description = match spec.remove("description") {
        Some(Value::String(text)) if !text.is_empty() => text,
        Some(_) => return None,
        None => String::new(),
    };
    let definition = ToolDefinition::new(name, description, parameters);
    let rest = (!spec.is_empty()).then(|| Native::new(WIRE, raw(&spec)));
    Some(match rest {
        Some(native) => definition.with_native(native),
        None => definition,
    })
}

/// Writes the definition of a tool. Returns `None` for a tool that exists only on another wire.
pub(crate) fn render(definition: &ToolDefinition) -> Option<Value> {
    let ToolDefinition { name, description, parameters, native, .. } = definition;
    let own = native.as_ref().filter(|native| &*native.wire == WIRE);
    if parameters.is_null() && native.is_some() {
        return own?.item.parse().ok();
    }
    // The service requires a schema whose type is `object`.
    let has_type = parameters.get("type").is_some();
    let schema = if has_type { parameters.clone() } else { json!({"type": "object"}) };
    let mut spec: Map<String, Value> =
        own.and_then(|native| native.item.parse().ok()).unwrap_or_default();
    spec.insert("name".to_owned(), json!(name));
    spec.insert(SCHEMA.to_owned(), json!({"json": schema}));
    // The service refuses an empty description.
    if !description.is_empty() {
        spec.insert("description".to_owned(), json!(description));
    }
    Some(json!({SPEC: spec}))
}

/// Reads the value of `toolChoice`. Returns `None` if the choice is unknown or has more fields.
pub(super) fn parse_choice(choice: &Value) -> Option<ToolChoice> {
    let fields = choice.as_object().filter(|fields| fields.len() == 1)?;
    let (kind, inner) = fields.iter().next()?;
    let inner = inner.as_object()?;
    match (kind.as_str(), inner.get("name"), inner.len()) {
        ("auto", None, 0) => Some(ToolChoice::Auto),
        ("any", None, 0) => Some(ToolChoice::Required),
        ("tool", Some(Value::String(name)), 1) => Some(ToolChoice::Tool(name.clone())),
        _ => None,
    }
}

/// Writes the value of `toolChoice`.
pub(super) fn render_choice(choice: &ToolChoice) -> Result<Value, BodyError> {
    match choice {
        // Converse has no value for this choice. `rules::fit` removes the tools and the choice from
        // such a request, so only a request that `fit` has not changed reaches this branch.
        ToolChoice::None => {
            Err(BodyError::Unsupported { what: "tool choice that permits no call of a tool" })
        }
        ToolChoice::Required => Ok(json!({"any": {}})),
        ToolChoice::Tool(name) => Ok(json!({"tool": {"name": name}})),
        _ => Ok(json!({"auto": {}})),
    }
}
