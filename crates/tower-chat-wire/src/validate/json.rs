//! Looking into JSON that may be anything.

use serde_json::Value;

use super::{Citation, report::Report};

/// The conversation of a body; reports it if there is none.
pub(super) fn conversation<'a>(
    body: &'a Value,
    field: &str,
    shape: &'static Citation,
    report: &mut Report,
) -> &'a [Value] {
    match body.get(field) {
        Some(Value::Array(messages)) => messages,
        _ => {
            report.message(shape, 0);
            &[]
        }
    }
}

/// The items of a field that is a list; none if it is anything else.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text of a field that is a text.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

/// Whether the field is there and says something: not `null`.
pub(super) fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}

/// Whether the text consists of ASCII letters, digits and these characters, and is not empty.
pub(super) fn is_identifier(text: &str, also: &[u8]) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}
