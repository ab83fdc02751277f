//! Adds to the schemas of tools the fields that services require.

use serde_json::{Map, Value};

/// The keywords with a schema as their value.
const SCHEMA_KEYWORDS: [&str; 8] =
    ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"];
/// The keywords with a list of schemas as their value.
const SCHEMA_LIST_KEYWORDS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// The keywords with an object of named schemas as their value.
const SCHEMA_MAP_KEYWORDS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// The maximum depth of nested schemas. A schema at a greater depth is not changed.
const MAX_DEPTH: usize = 100;

/// What the service that receives a schema requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demands {
    /// OpenAI and compatible services: the schema of every array has `items`.
    OpenAi,
    /// All other services: the schema of an array need not have `items`.
    Other,
}

/// Adds fields that services require to the schema of a tool, if they are missing. These fields do
/// not change the meaning of the schema. Returns whether a field was added.
///
/// - The schema itself must have the type `object`: "schema must be a JSON Schema of 'type:
///   "object"', got 'type: "None"'" (<https://github.com/i-am-bee/beeai-framework/issues/844>).
/// - Every schema of an object must have `properties`: "object schema missing properties"
///   (<https://github.com/github/github-mcp-server/issues/1548>).
/// - For OpenAI, every schema of an array must have `items`: "array schema missing items"
///   (<https://github.com/PrefectHQ/fastmcp/issues/2464>).
pub(super) fn complete(schema: &mut Value, demands: Demands) -> bool {
    let has_root = add_root_type(schema);
    add_missing_fields(schema, demands, 0) || has_root
}

/// Adds the type `object` to the schema of a tool, if the schema has fields but no type.
fn add_root_type(schema: &mut Value) -> bool {
    let Value::Object(fields) = schema else { return false };
    let is_missing = !fields.is_empty() && fields.get("type").is_none_or(Value::is_null);
    if is_missing {
        fields.insert("type".to_owned(), "object".into());
    }
    is_missing
}

fn add_missing_fields(schema: &mut Value, demands: Demands, depth: usize) -> bool {
    let Value::Object(fields) = schema else { return false };
    if depth > MAX_DEPTH {
        return false;
    }
    let mut has_added = false;
    if has_type(fields, "object") && !fields.get("properties").is_some_and(Value::is_object) {
        fields.insert("properties".to_owned(), Value::Object(Map::new()));
        has_added = true;
    }
    let has_items = |items: &Value| items.is_object() || items.is_array() || items.is_boolean();
    if demands == Demands::OpenAi
        && has_type(fields, "array")
        && !fields.get("items").is_some_and(has_items)
    {
        fields.insert("items".to_owned(), Value::Object(Map::new()));
        has_added = true;
    }
    for (name, value) in fields {
        let name = name.as_str();
        match value {
            Value::Object(named) if SCHEMA_MAP_KEYWORDS.contains(&name) => {
                for schema in named.values_mut() {
                    has_added |= add_missing_fields(schema, demands, depth + 1);
                }
            }
            Value::Array(schemas) if SCHEMA_LIST_KEYWORDS.contains(&name) || name == "items" => {
                for schema in schemas {
                    has_added |= add_missing_fields(schema, demands, depth + 1);
                }
            }
            value if SCHEMA_KEYWORDS.contains(&name) => {
                has_added |= add_missing_fields(value, demands, depth + 1)
            }
            _ => {}
        }
    }
    has_added
}

/// Returns whether the field `type` of the schema is `wanted`, or a list that contains `wanted`.
fn has_type(fields: &Map<String, Value>, wanted: &str) -> bool {
    match fields.get("type") {
        Some(Value::String(kind)) => kind == wanted,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn completed(schema: &Value, demands: Demands) -> Value {
        let mut changed = schema.clone();
        assert!(complete(&mut changed, demands), "{schema}");
        let mut again = changed.clone();
        assert!(!complete(&mut again, demands), "{schema}");
        changed
    }

    #[test]
    fn every_object_schema_without_properties_gets_empty_properties() {
        let bare = || json!({"type": "object"});
        let full = || json!({"type": "object", "properties": {}});
        let schema = |inner: fn() -> Value| {
            json!({
                "type": ["object", "null"],
                "properties": {
                    "type": inner(),
                    "list": {"type": "array", "items": inner()},
                    "one": {"anyOf": [inner(), {"type": "string"}]},
                    "map": {"type": "object", "properties": {}, "additionalProperties": inner()},
                    "same": {"$ref": "#/$defs/it"},
                },
                "$defs": {"it": inner()},
                "default": {"type": "object"},
                "enum": [{"type": "object"}],
            })
        };
        for demands in [Demands::OpenAi, Demands::Other] {
            assert_eq!(completed(&schema(bare), demands), schema(full));
            assert_eq!(completed(&bare(), demands), full());
            let null = json!({"type": "object", "properties": null});
            assert_eq!(completed(&null, demands), full());
        }
    }

    #[test]
    fn the_schema_of_a_tool_gets_the_type_object_if_it_has_no_type() {
        for (schema, expected) in [
            (
                json!({"properties": {"a": {"type": "string"}}}),
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            ),
            (
                json!({"$ref": "#/$defs/A", "$defs": {}}),
                json!({"$ref": "#/$defs/A", "$defs": {}, "type": "object", "properties": {}}),
            ),
            (json!({"type": null}), json!({"type": "object", "properties": {}})),
        ] {
            assert_eq!(completed(&schema, Demands::Other), expected);
        }
        let mut nothing = json!({});
        assert!(!complete(&mut nothing, Demands::OpenAi), "an empty schema is not changed");
    }

    #[test]
    fn an_array_schema_without_items_gets_items_for_openai() {
        let schema = |array: &Value| json!({"type": "object", "properties": {"a": array}});
        for (array, expected) in [
            (json!({"type": "array"}), json!({"type": "array", "items": {}})),
            (
                json!({"type": ["array", "null"], "items": null}),
                json!({"type": ["array", "null"], "items": {}}),
            ),
            (
                json!({"type": "array", "prefixItems": [{"type": "number"}]}),
                json!({"type": "array", "prefixItems": [{"type": "number"}], "items": {}}),
            ),
        ] {
            assert_eq!(completed(&schema(&array), Demands::OpenAi), schema(&expected));
            assert!(!complete(&mut schema(&array), Demands::Other));
        }
        for items in [json!({"type": "string"}), json!([{"type": "string"}]), json!(false)] {
            let mut whole = schema(&json!({"type": "array", "items": items}));
            assert!(!complete(&mut whole, Demands::OpenAi), "{items}");
        }
    }
}
