//! The arguments of calls in the history.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The arguments as the text of a JSON object; `None` of a text that is one.
pub(super) fn as_object(arguments: &str) -> Option<String> {
    let text = arguments.trim_start();
    if text.starts_with('{') && is_value(text) {
        return None;
    }
    Some(match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Null) => "{}".to_owned(),
        _ if text.is_empty() => "{}".to_owned(),
        _ => json!({"arguments": arguments}).to_string(),
    })
}

/// Whether any reader can read the text: a value is made of one with an escape or an exponent, since half
/// a surrogate pair and a number beyond all bounds are found so alone.
fn is_value(text: &str) -> bool {
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
    fn whatever_is_no_object_becomes_one() {
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
