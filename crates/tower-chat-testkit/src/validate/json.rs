//! Accesses fields of arbitrary JSON.

use serde_json::Value;

use super::{Citation, report::Report};

/// Returns the conversation of a body, and reports it if it is missing.
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

/// Returns the items of a field that is a list; none for any other field.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the field if it is a string.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

/// Returns whether the field is present and not `null`.
pub(super) fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}

/// Returns whether the text is not empty and consists of ASCII letters, digits and the characters
/// in `also`.
pub(super) fn is_identifier(text: &str, also: &[u8]) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}
