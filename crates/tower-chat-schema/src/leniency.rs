//! Finds values that serde would deserialize although they do not conform to the schema.

use serde::de::{Error as _, Unexpected};
use serde_json::{Error, Value};

use crate::nulls::resolve_ref;

/// A value that must not be deserialized because it does not conform to the schema, and its path.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) path: String,
    pub(crate) error: Error,
}

impl Misfit {
    fn here(error: Error) -> Self {
        Self { path: String::new(), error }
    }

    fn under(self, field: &str) -> Self {
        let path = match self.path.as_str() {
            "" => field.to_owned(),
            path if path.starts_with('[') => format!("{field}{path}"),
            path => format!("{field}.{path}"),
        };
        Self { path, ..self }
    }
}

/// Finds one of two kinds of values. The first kind is an array where the schema has an object:
/// serde would read the elements of the array as the fields of the object. The second kind is a
/// number that serde would read as an infinite `f32`.
///
/// If the schema has alternatives, only the alternative that fits best is searched, so that the
/// time is linear in the size of the value.
pub(crate) fn find_misfit(value: &Value, schema: &Value) -> Option<Misfit> {
    find(value, schema, schema)
}

fn find(value: &Value, schema: &Value, root: &Value) -> Option<Misfit> {
    let schema = resolve_ref(schema, root);
    let own = match value {
        Value::Array(_) if is_object_only(schema) => Some(not_an_object()),
        Value::Array(items) => {
            let (listed, rest) = (schema.get("prefixItems"), schema.get("items"));
            let listed = listed.and_then(Value::as_array);
            items.iter().enumerate().find_map(|(index, item)| {
                let schema = listed.and_then(|schemas| schemas.get(index));
                let schema = schema.or(rest)?;
                Some(find(item, schema, root)?.under(&format!("[{index}]")))
            })
        }
        Value::Object(fields) => {
            let named = schema.get("properties");
            let rest = schema.get("additionalProperties");
            fields.iter().find_map(|(name, value)| {
                let schema = named.and_then(|named| named.get(name)).or(rest)?;
                Some(find(value, schema, root)?.under(name))
            })
        }
        Value::Number(_) => infinite_float(value, schema),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    };
    own.or_else(|| {
        let all = schema.get("allOf").and_then(Value::as_array)?;
        all.iter().find_map(|schema| find(value, schema, root))
    })
    .or_else(|| {
        let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
        find_in_alternatives(value, alternatives, root)
    })
}

fn find_in_alternatives(value: &Value, alternatives: &[Value], root: &Value) -> Option<Misfit> {
    let best = alternatives.iter().find(|schema| probably_conforms(value, schema, root, true));
    match best.or_else(|| {
        alternatives.iter().find(|schema| probably_conforms(value, schema, root, false))
    }) {
        Some(schema) => find(value, schema, root),
        None if !value.is_array() => None,
        None => {
            let takes_object = |schema| is_object_only(resolve_ref(schema, root));
            alternatives.iter().any(takes_object).then(not_an_object)
        }
    }
}

/// Returns whether a value probably conforms to a schema. The types of the fields of an object are
/// checked only if `by_fields` is set.
fn probably_conforms(value: &Value, schema: &Value, root: &Value, by_fields: bool) -> bool {
    let schema = resolve_ref(schema, root);
    if !has_type(value, schema) || !is_among_values(value, schema) {
        return false;
    }
    let Value::Object(fields) = value else { return true };
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    if !required.filter_map(Value::as_str).all(|name| fields.contains_key(name)) {
        return false;
    }
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties
        .filter_map(|(name, schema)| Some((fields.get(name)?, resolve_ref(schema, root))))
        .all(|(value, schema)| {
            is_among_values(value, schema) && (!by_fields || has_type(value, schema))
        })
}

fn has_type(value: &Value, schema: &Value) -> bool {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_kind = |stated: &Value| stated == kind || (kind == "number" && stated == "integer");
    match schema.get("type") {
        Some(Value::Array(stated)) => stated.iter().any(is_kind),
        Some(stated) => is_kind(stated),
        None => true,
    }
}

fn is_among_values(value: &Value, schema: &Value) -> bool {
    let is_constant = schema.get("const").is_none_or(|constant| constant == value);
    let values = schema.get("enum").and_then(Value::as_array);
    is_constant && values.is_none_or(|values| values.contains(value))
}

/// Returns whether a schema accepts objects, and possibly `null`, but no arrays.
fn is_object_only(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::Array(stated)) => {
            stated.iter().any(|kind| kind == "object") && !stated.iter().any(|kind| kind == "array")
        }
        Some(stated) => stated == "object",
        None => false,
    }
}

fn not_an_object() -> Misfit {
    Misfit::here(Error::invalid_type(Unexpected::Seq, &"an object"))
}

fn infinite_float(value: &Value, schema: &Value) -> Option<Misfit> {
    let number = value.as_f64()?;
    let is_f32 = schema.get("format").is_some_and(|format| format == "float");
    let is_outside = is_f32 && number.abs() > f64::from(f32::MAX);
    let expected = "a number of 32 bits";
    is_outside.then(|| Misfit::here(Error::invalid_value(Unexpected::Float(number), &expected)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn misfit(value: &Value, schema: &Value) -> Option<String> {
        find_misfit(value, schema).map(|found| format!("{}: {}", found.path, found.error))
    }

    #[test]
    fn a_list_is_no_object_wherever_it_is() {
        let payment = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let schema = json!({
            "type": "object",
            "properties": {
                "all": {"type": "array", "items": {"$ref": "#/$defs/Payment"}},
                "by": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Payment"}},
                "may": {"anyOf": [{"$ref": "#/$defs/Payment"}, {"type": "null"}]},
                "pair": {"type": "array", "prefixItems": [{"type": "string"}, payment]},
                "one_of": {"oneOf": [
                    {"type": "object", "properties": {"Paid": {"$ref": "#/$defs/Payment"}},
                     "required": ["Paid"], "additionalProperties": false},
                    {"type": "object", "properties": {"Refused": {"type": "string"}},
                     "required": ["Refused"], "additionalProperties": false},
                    {"type": "string", "enum": ["Open"]},
                ]},
            },
            "$defs": {"Payment": payment},
        });
        let expected = "invalid type: sequence, expected an object";
        for (value, path) in [
            (json!(["bob", 5]), ""),
            (json!({"all": [{"to": "a"}, ["bob"]]}), "all[1]"),
            (json!({"by": {"x": ["bob"]}}), "by.x"),
            (json!({"may": ["bob"]}), "may"),
            (json!({"pair": ["a", ["bob"]]}), "pair[1]"),
            (json!({"one_of": {"Paid": ["bob"]}}), "one_of.Paid"),
        ] {
            assert_eq!(misfit(&value, &schema), Some(format!("{path}: {expected}")), "{value}");
        }
        let fitting = json!({
            "all": [{"to": "a"}], "by": {"x": {}}, "may": null, "pair": ["a", {}], "one_of": "Open",
            "unknown": [1],
        });
        assert_eq!(misfit(&fitting, &schema), None);
    }

    #[test]
    fn of_two_alternatives_the_one_whose_fields_fit_counts() {
        let schema = json!({"anyOf": [
            {"type": "object", "properties": {"at": {"type": "object"}, "n": {"type": "string"}}},
            {"type": "object", "properties": {"at": {"type": "array"}, "n": {"type": "integer"}}},
        ]});
        assert_eq!(misfit(&json!({"at": [1, 2], "n": 5}), &schema), None);
    }

    #[test]
    fn a_number_that_is_infinite_in_32_bits_is_found() {
        let schema = json!({"type": "object", "properties": {
            "single": {"type": ["number", "null"], "format": "float"},
            "double": {"type": "number", "format": "double"},
        }});
        for number in [json!(1e300), json!(-1e39)] {
            assert!(misfit(&json!({"single": number}), &schema).is_some(), "{number}");
            assert_eq!(misfit(&json!({"double": number}), &schema), None, "{number}");
        }
        assert_eq!(misfit(&json!({"single": f32::MAX}), &schema), None);
    }
}
