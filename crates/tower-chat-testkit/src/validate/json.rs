//! Reads fields of JSON values that may have any form.

use serde_json::Value;

use super::{Citation, report::Report};

/// Returns the conversation of a request body. If the conversation is missing, reports a violation.
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

/// Returns the items of a field if its value is a list, and no items otherwise.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the value of a field if it is a string.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

/// Returns whether a field exists and is not `null`.
pub(super) fn is_set(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
}

/// Returns whether a text is not empty and has only ASCII letters, digits and `also`.
pub(super) fn is_identifier(text: &str, also: &[u8]) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
}
