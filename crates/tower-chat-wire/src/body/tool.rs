//! Reads and writes definitions of tools.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use serde_json::{Map, Value, json};
use tower_chat_core::{Native, ToolDefinition};

use super::as_json;

/// The form of a tool's definition on a wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolForm {
    /// The name of the wire.
    pub(crate) wire: &'static str,
    /// The name of the field with the schema of the arguments.
    pub(crate) parameters: &'static str,
    /// Whether an inner object contains the name, the description and the parameters. Its field is
    /// named after the type of the tool, such as `function`.
    pub(crate) is_nested: bool,
    /// Whether the definition has a field `strict` in the same object as the schema.
    pub(crate) has_strict: bool,
    /// Returns the usual definition of a function, without its name, description and parameters. A
    /// definition that is read in another form gets a native item with its other fields.
    pub(crate) usual_definition: fn() -> Value,
}

impl ToolForm {
    /// Reads the JSON object that defines a tool. A tool without a name is named after its type.
    pub(crate) fn parse(&self, tool: Value) -> ToolDefinition {
        let kind = tool.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut rest = tool;
        let inner_name = self.inner_field(&rest, &kind);
        let fields = match &inner_name {
            Some(name) => rest.get_mut(name).and_then(Value::as_object_mut),
            None => rest.as_object_mut(),
        };
        let mut definition = ToolDefinition::new(kind.clone(), "", Value::Null);
        // A definition without a description gets a native item, so that `render` writes no
        // description.
        let mut is_plain = false;
        if let Some(fields) = fields {
            if let Some(name) = take_text(fields, "name") {
                definition.name = name;
            }
            is_plain = fields.contains_key("description");
            definition.description = take_text(fields, "description").unwrap_or_default();
            let is_schema = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
            if fields.get(self.parameters).is_some_and(is_schema) {
                definition.parameters = fields.remove(self.parameters).unwrap_or_default();
            } else if fields.contains_key(self.parameters)
                || matches!(kind.as_str(), "function" | "") && !definition.name.is_empty()
            {
                definition.parameters = json!({});
            }
        }
        if !is_plain || rest != (self.usual_definition)() {
            definition.native = Some(Native::new(self.wire, as_json(&rest)));
        }
        definition
    }

    /// Writes the JSON object that defines a tool. Returns `None` for a tool that exists only on
    /// another wire.
    pub(crate) fn render(&self, definition: &ToolDefinition) -> Option<Value> {
        let native = definition.native.as_ref().filter(|native| &*native.wire == self.wire);
        let native: Option<Value> = native.and_then(|native| native.item.parse().ok());
        if native.is_none() && definition.native.is_some() && definition.parameters.is_null() {
            return None;
        }
        let has_native = native.is_some();
        let mut tool = native.unwrap_or_else(self.usual_definition);
        let kind = tool.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let fields = match self.inner_field(&tool, &kind) {
            Some(name) => tool.get_mut(&name)?.as_object_mut()?,
            None => tool.as_object_mut()?,
        };
        if definition.name != kind {
            fields.insert("name".to_owned(), json!(definition.name));
        }
        if !definition.description.is_empty() || !has_native {
            fields.insert("description".to_owned(), json!(definition.description));
        }
        let is_empty = definition.parameters.as_object().is_some_and(Map::is_empty);
        if !definition.parameters.is_null() && !is_empty {
            fields.insert(self.parameters.to_owned(), definition.parameters.clone());
        }
        if definition.strict && self.has_strict {
            fields.insert("strict".to_owned(), json!(true));
        }
        Some(tool)
    }

    fn inner_field(&self, tool: &Value, kind: &str) -> Option<String> {
        let is_nested = self.is_nested && tool.get(kind).is_some_and(Value::is_object);
        is_nested.then(|| kind.to_owned())
    }
}

/// Removes and returns a field if it is a string that is not empty.
fn take_text(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    let text = fields.get(name)?.as_str().filter(|text| !text.is_empty())?.to_owned();
    fields.remove(name);
    Some(text)
}
