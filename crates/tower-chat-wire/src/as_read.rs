//! Marks messages that were read from an unusual form of JSON, so that they can be written in the
//! same form again.
//!
//! The wires (JSON formats) of Bedrock, Cohere and Ollama have several forms for the same message.
//! A message that was read in the usual form has no mark. Any other message begins with a mark: a
//! native part with the JSON from which the message was read.
//!
//! When a message with a mark is written, the JSON of the mark is parsed again. If the result is
//! equal to the message, this JSON is written. Otherwise, an application has changed the message,
//! and the message is written in the usual form.

use std::collections::BTreeMap;

use tower_chat_core::{Message, Native, Part, RawJson};

use crate::{WireError, fields::Fields};

/// The name of the only field in the JSON object of a mark.
const FIELD: &str = "as_read";

/// Marks a message with the JSON from which it was read.
pub(crate) fn add_mark(message: &mut Message, wire: &str, json: &RawJson) {
    let mut fields = Fields::default();
    fields.set(FIELD, json.clone());
    message.parts.insert(0, Part::Native(fields.into_native(wire)));
}

/// Returns whether the native item is a mark. Marks are not written to requests.
pub(crate) fn is_mark(native: &Native, wire: &str) -> bool {
    marked_json(native, wire).is_some()
}

fn marked_json(native: &Native, wire: &str) -> Option<RawJson> {
    let mut fields = Fields::of_native(Some(native), wire)?;
    (fields.len() == 1).then(|| fields.take(FIELD)).flatten()
}

/// Returns the JSON in a message's mark, even if the message has been changed since.
pub(crate) fn original(message: &Message, wire: &str) -> Option<RawJson> {
    match message.parts.first()? {
        Part::Native(native) => marked_json(native, wire),
        _ => None,
    }
}

/// Returns the JSON in a message's mark, unless the message has been changed since.
pub(crate) fn unchanged(
    message: &Message,
    wire: &str,
    parse: fn(&RawJson) -> Result<Message, WireError>,
) -> Option<RawJson> {
    let json = original(message, wire)?;
    let (_, rest) = message.parts.split_first()?;
    let read = parse(&json).ok()?;
    let is_same = read.role == message.role
        && read.parts.len() == rest.len()
        && read.parts.iter().zip(rest).all(|(read, part)| is_same_part(read, part));
    is_same.then_some(json)
}

/// Returns whether a part is equal to the part that was read. Ignores the fields that are set after
/// a message is read: `call` and `ends_run` of results, and `is_cut_off` of calls.
fn is_same_part(read: &Part, part: &Part) -> bool {
    match part {
        Part::ToolResult(result) if result.call.is_some() || result.ends_run => {
            let mut result = result.clone();
            (result.call, result.ends_run) = (None, false);
            *read == Part::ToolResult(result)
        }
        Part::ToolCall(call) if call.is_cut_off => {
            let mut call = call.clone();
            call.is_cut_off = false;
            *read == Part::ToolCall(call)
        }
        part => read == part,
    }
}

/// Returns whether two JSON texts have the same value, in any order of fields. Numbers must have
/// the same digits.
pub(crate) fn is_same_json(one: &RawJson, other: &RawJson) -> bool {
    is_same_json_at(one, other, 0)
}

/// The nesting depth up to which [`is_same_json`] parses values. Of more deeply nested values,
/// which no service sends, only the texts are compared.
const MAX_DEPTH: usize = 120;

fn is_same_json_at(one: &RawJson, other: &RawJson, depth: usize) -> bool {
    if one.get() == other.get() {
        return true;
    }
    let kind = |json: &RawJson| json.get().as_bytes().first().copied();
    if depth > MAX_DEPTH || kind(one) != kind(other) {
        return false;
    }
    match kind(one) {
        Some(b'{') => {
            let fields = |json: &RawJson| json.parse::<BTreeMap<String, RawJson>>();
            let (Ok(one), Ok(other)) = (fields(one), fields(other)) else { return false };
            one.len() == other.len()
                && one.iter().zip(&other).all(|((name, value), (other_name, other_value))| {
                    name == other_name && is_same_json_at(value, other_value, depth + 1)
                })
        }
        Some(b'[') => {
            let items = |json: &RawJson| json.parse::<Vec<RawJson>>();
            let (Ok(one), Ok(other)) = (items(one), items(other)) else { return false };
            one.len() == other.len()
                && one.iter().zip(&other).all(|(one, other)| is_same_json_at(one, other, depth + 1))
        }
        Some(b'"') => {
            let text = |json: &RawJson| json.parse::<String>().ok();
            text(one).is_some() && text(one) == text(other)
        }
        _ => false,
    }
}

/// Parses the items of a JSON list. The error names the list as `what`.
pub(crate) fn list(json: &str, what: &'static str) -> Result<Vec<RawJson>, WireError> {
    serde_json::from_str(json).map_err(|source| WireError::Json {
        what,
        expected: "a JSON list",
        source,
    })
}
