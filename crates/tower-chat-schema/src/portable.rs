//! Converts the schema of a type to the form that all providers accept.

use serde_json::{Map, Value, json};

/// The keywords that some providers refuse, and whose content is moved into the description.
const LIMITS: [&str; 15] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "uniqueItems",
];

/// The string formats that every provider with support for formats accepts. The formats of numbers,
/// such as `uint8`, are not in this list, because schemars names them after Rust types.
const FORMATS: [&str; 9] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"];

/// The name of the field that contains the value of a type whose values are not objects.
pub(crate) const VALUE: &str = "value";

#[derive(Debug, Clone)]
pub(crate) struct PortableSchema {
    pub(crate) schema: Value,
    pub(crate) root: Root,
    /// Whether each object in the schema accepts only the keys that the schema lists.
    pub(crate) is_closed: bool,
}

/// How the JSON object that a model writes represents the value of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// The object is the value itself.
    Itself,
    /// The object has no properties, because the only value of the type is `null`.
    Nothing,
    /// The object contains the value in the field [`VALUE`].
    Wrapped,
}

impl PortableSchema {
    pub(crate) fn of(schema: &Value) -> Self {
        let root = match schema.get("type") {
            Some(kind) if kind == "object" => Root::Itself,
            Some(kind) if kind == "null" => Root::Nothing,
            Some(_) | None => Root::Wrapped,
        };
        let mut schema =
            if root == Root::Nothing { json!({"type": "object"}) } else { schema.clone() };
        if let Some(fields) = schema.as_object_mut().filter(|_| root == Root::Itself) {
            // Some providers refuse an object without this keyword, even if all keys are allowed.
            fields.entry("properties").or_insert_with(|| json!({}));
        }
        let mut definitions = schema.as_object_mut().and_then(|fields| {
            fields.remove("$schema");
            fields.remove("$defs")
        });
        let mut is_closed = true;
        make_portable(&mut schema, &mut is_closed);
        if let Some(Value::Object(definitions)) = &mut definitions {
            definitions.values_mut().for_each(|schema| make_portable(schema, &mut is_closed));
        }
        if root == Root::Wrapped {
            schema = json!({
                "type": "object",
                "properties": {VALUE: schema},
                "required": [VALUE],
                "additionalProperties": false,
            });
        }
        if let (Some(definitions), Some(fields)) = (definitions, schema.as_object_mut()) {
            fields.insert("$defs".to_owned(), definitions);
        }
        Self { schema, root, is_closed }
    }
}

fn make_portable(schema: &mut Value, is_closed: &mut bool) {
    let Some(fields) = schema.as_object_mut() else {
        // The schema `true` accepts any value.
        *is_closed = false;
        return;
    };
    name_properties(fields);
    describe_limits(fields);
    fields.remove("default");
    if fields.get("format").is_some_and(|format| !FORMATS.iter().any(|known| format == known)) {
        fields.remove("format");
    }
    if let Some(value) = fields.remove("const") {
        fields.insert("enum".to_owned(), json!([value]));
    }
    if let Some(alternatives) = fields.remove("oneOf") {
        fields.insert("anyOf".to_owned(), alternatives);
    }
    close(fields, is_closed);
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(|property| make_portable(property, is_closed));
    }
    for name in ["anyOf", "allOf", "prefixItems"] {
        if let Some(Value::Array(list)) = fields.get_mut(name) {
            list.iter_mut().for_each(|schema| make_portable(schema, is_closed));
        }
    }
    if let Some(values) = fields.get_mut("additionalProperties").filter(|it| it.is_object()) {
        make_portable(values, is_closed);
    }
    if let Some(items) = fields.get_mut("items").filter(|items| !items.is_boolean()) {
        make_portable(items, is_closed);
    }
}

/// Adds empty `properties` to an object type without fields.
fn name_properties(fields: &mut Map<String, Value>) {
    let is_object = fields.get("type").is_some_and(|kind| kind == "object");
    if is_object
        && !fields.contains_key("properties")
        && !fields.contains_key("additionalProperties")
    {
        fields.insert("properties".to_owned(), json!({}));
    }
}

/// Changes the schema of an object so that it requires every property and accepts no other keys. A
/// property that was optional may be `null`.
fn close(fields: &mut Map<String, Value>, is_closed: &mut bool) {
    if fields.get("type").is_none_or(|kind| kind != "object") && !fields.contains_key("properties")
    {
        return;
    }
    let is_map = fields.get("additionalProperties").is_some_and(|rest| *rest != json!(false));
    if is_map || !fields.contains_key("properties") {
        *is_closed = false;
    } else {
        fields.insert("additionalProperties".to_owned(), json!(false));
    }
    let required = fields.remove("required");
    let required: Vec<&str> =
        required.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str).collect();
    let Some(Value::Object(properties)) = fields.get_mut("properties") else { return };
    for (_, property) in
        properties.iter_mut().filter(|(name, _)| !required.contains(&name.as_str()))
    {
        make_nullable(property);
    }
    let names: Vec<&String> = properties.keys().collect();
    let names = json!(names);
    fields.insert("required".to_owned(), names);
}

fn make_nullable(property: &mut Value) {
    let Some(fields) = property.as_object_mut() else { return };
    match fields.get("type") {
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "null") => {}
        Some(Value::String(kind)) if kind == "null" => {}
        Some(Value::String(kind)) if !fields.contains_key("enum") => {
            let kinds = json!([kind, "null"]);
            fields.insert("type".to_owned(), kinds);
        }
        _ => {
            let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
            let alternatives = fields.get("anyOf").or_else(|| fields.get("oneOf"));
            let alternatives = alternatives.and_then(Value::as_array);
            if !alternatives.is_some_and(|list| list.iter().any(is_null)) {
                let schema = Value::Object(std::mem::take(fields));
                *property = json!({"anyOf": [schema, {"type": "null"}]});
            }
        }
    }
}

/// Removes the keywords in [`LIMITS`], and describes them at the end of the description.
fn describe_limits(fields: &mut Map<String, Value>) {
    let limits: Vec<String> = LIMITS
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", fields.remove(*name)?)))
        .collect();
    if limits.is_empty() {
        return;
    }
    let limits = format!("({})", limits.join(", "));
    let description = match fields.get("description").and_then(Value::as_str) {
        Some(text) => format!("{text} {limits}"),
        None => limits,
    };
    fields.insert("description".to_owned(), description.into());
}
