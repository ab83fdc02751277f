//! The schemas of tools.

use serde_json::{Map, Value};

/// The keywords whose value is a schema, a list of schemas, or a map of schemas.
const ONE: [&str; 8] =
    ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"];
const SOME: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const NAMED: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Schemas in more schemas than this are left as they are.
const MAX_DEPTH: usize = 100;

/// Gives every schema of an object that has no `properties` an empty one, which OpenAI demands, in all
/// places: "object schema missing properties"
/// (<https://github.com/github/github-mcp-server/issues/1548>). Returns whether there was one.
pub(super) fn add_properties(schema: &mut Value) -> bool {
    add_at(schema, 0)
}

fn add_at(schema: &mut Value, depth: usize) -> bool {
    let Value::Object(fields) = schema else { return false };
    if depth > MAX_DEPTH {
        return false;
    }
    let mut has_added = false;
    if is_of_object(fields) && !fields.get("properties").is_some_and(Value::is_object) {
        fields.insert("properties".to_owned(), Value::Object(Map::new()));
        has_added = true;
    }
    for (name, value) in fields {
        let name = name.as_str();
        match value {
            Value::Object(named) if NAMED.contains(&name) => {
                for schema in named.values_mut() {
                    has_added |= add_at(schema, depth + 1);
                }
            }
            Value::Array(schemas) if SOME.contains(&name) || name == "items" => {
                for schema in schemas {
                    has_added |= add_at(schema, depth + 1);
                }
            }
            value if ONE.contains(&name) => has_added |= add_at(value, depth + 1),
            _ => {}
        }
    }
    has_added
}

fn is_of_object(fields: &Map<String, Value>) -> bool {
    match fields.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_without_properties_get_them_wherever_they_stand() {
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
        let mut changed = schema(bare);
        assert!(add_properties(&mut changed));
        assert_eq!(changed, schema(full));
        assert!(!add_properties(&mut changed));
        let mut alone = bare();
        assert!(add_properties(&mut alone));
        assert_eq!(alone, full());
        let mut null = json!({"type": "object", "properties": null});
        assert!(add_properties(&mut null));
        assert_eq!(null, full());
    }
}
