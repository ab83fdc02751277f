//! Removes `null` fields that a model sends only because the portable schema requires every
//! property.

use serde_json::Value;

/// Removes a field that is `null`, if the schema lists the field and does not require it.
pub(crate) fn remove_nulls_of_missing(value: &mut Value, schema: &Value) {
    remove(value, schema, schema);
}

fn remove(value: &mut Value, schema: &Value, root: &Value) {
    let schema = resolve_ref(schema, root);
    match value {
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| remove(item, schema, root));
            }
        }
        Value::Object(fields) => {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            let required = schema.get("required").and_then(Value::as_array);
            let is_required =
                |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
            fields.retain(|name, value| {
                !value.is_null() || is_required(name) || !properties.contains_key(name)
            });
            for (name, value) in fields {
                if let Some(schema) = properties.get(name) {
                    remove(value, schema, root);
                }
            }
        }
        _ => {}
    }
}

pub(crate) fn resolve_ref<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let pointer = reference.and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
