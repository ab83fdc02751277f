//! Converts the arguments of calls to JSON objects.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// Returns a JSON object that replaces the arguments, or `None` if the arguments are already a JSON
/// object. Blank arguments and `null` become an empty object. Any other text becomes the field
/// `arguments` of an object.
pub(super) fn as_object(arguments: &str) -> Option<String> {
    let text = arguments.trim_start();
    if text.starts_with('{') && is_valid_json(text) {
        return None;
    }
    Some(match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Null) => "{}".to_owned(),
        _ if text.is_empty() => "{}".to_owned(),
        _ => json!({"arguments": arguments}).to_string(),
    })
}

/// Returns whether the text is JSON that every parser accepts. A text that may contain an escape
/// sequence or an exponent is parsed as a `Value`, because `IgnoredAny` does not refuse unpaired
/// surrogates and numbers out of range.
fn is_valid_json(text: &str) -> bool {
    if text.contains(['\\', 'e', 'E']) {
        serde_json::from_str::<Value>(text).is_ok()
    } else {
        serde_json::from_str::<IgnoredAny>(text).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_not_a_json_object_become_an_object() {
        for object in ["{}", r#" {"a": 1.50, "a": [null]} "#, r#"{"a":"\u00e9"}"#] {
            assert_eq!(as_object(object), None, "{object}");
        }
        for nothing in ["", "  \n", "null", " null "] {
            assert_eq!(as_object(nothing).as_deref(), Some("{}"), "{nothing:?}");
        }
        for other in [
            r#"{"city": "Pa"#,
            "{'city': 'Paris'}",
            r#"["Paris"]"#,
            r#""Paris""#,
            "7",
            "Paris",
            r#"{"a":1}{"b":2}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":1e999}"#,
            "{\"a\":\"\n\"}",
        ] {
            let object: Value =
                serde_json::from_str(&as_object(other).expect("another text")).unwrap();
            assert_eq!(object, json!({"arguments": other}));
        }
    }
}
