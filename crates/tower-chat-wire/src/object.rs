//! Functions for JSON objects whose values are JSON text.

use serde_json::{Map, Value};
use tower_chat_core::{ChatOptions, Classified, RawJson};

use crate::{AnswerError, stream::Frame};
pub(crate) use crate::{
    fields::{as_text, raw},
    stream::Object,
};

/// Parses the fields of a JSON object.
pub(crate) fn parse(json: &str) -> Result<Object, AnswerError> {
    serde_json::from_str(json).map_err(|source| AnswerError::Malformed {
        what: format!("it is not a JSON object{}", beginning(json)),
        body: json.to_owned(),
        source: Some(Classified::permanent(source).into()),
    })
}

/// Parses the data of an event as a JSON object.
pub(crate) fn of_frame(frame: &Frame) -> Result<Object, AnswerError> {
    serde_json::from_str(&frame.data).map_err(|source| AnswerError::Malformed {
        what: format!("an event is not a JSON object{}", beginning(&frame.data)),
        body: frame.data.clone(),
        source: Some(Classified::permanent(source).into()),
    })
}

/// Describes the beginning of a text that is not JSON, such as the page of a proxy. Returns an
/// empty string for JSON, even damaged JSON, because it may contain messages of the user.
fn beginning(text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.is_empty() || text.starts_with(['{', '[', '"']) {
        return String::new();
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let begin: String = words.chars().take(MAX_CHARACTERS).collect();
    let dots = if begin.len() < words.len() { "..." } else { "" };
    format!(" but begins with {begin:?}{dots}")
}

/// The maximum number of characters of the received text that an error contains.
const MAX_CHARACTERS: usize = 200;

/// Returns the field if it is a string.
pub(crate) fn text(object: &Object, name: &str) -> Option<String> {
    as_text(object.get(name)?)
}

/// Returns whether the field is present and is not `null`, `""` or `false`. Some services send an
/// `error` with one of these values in answers that are not errors.
pub(crate) fn has_value(object: &Object, name: &str) -> bool {
    object.get(name).is_some_and(|value| !matches!(value.get(), "null" | "\"\"" | "false"))
}

/// Removes the field, and returns it unless it is `null`.
pub(crate) fn take(object: &mut Object, name: &str) -> Option<RawJson> {
    object.remove(name).filter(|value| value.get() != "null")
}

/// Removes the field, and returns it if it is an object.
pub(crate) fn take_object(object: &mut Object, name: &str) -> Option<Object> {
    take(object, name)?.parse().ok()
}

/// Removes and returns the field if it is a string. Any other field is not removed.
pub(crate) fn take_text(object: &mut Object, name: &str) -> Option<String> {
    let text = text(object, name)?;
    object.remove(name);
    Some(text)
}

/// Parses a value for metadata. A value that is nested too deeply becomes a string with its JSON.
pub(crate) fn to_value(value: &RawJson) -> Value {
    value.parse().unwrap_or_else(|_| Value::String(value.get().to_owned()))
}

/// Converts the fields of a body to JSON text. Numbers that come from `options` get all their
/// digits back, which a [`Value`] can lose.
pub(crate) fn to_object(fields: &Map<String, Value>, options: &ChatOptions) -> Object {
    let fields = fields.iter().map(|(name, value)| (name.clone(), raw(value)));
    let mut fields: Object = fields.collect();
    options.exact_numbers().restore(&mut fields);
    fields
}

/// Converts fields of an answer to metadata, without the fields that are `null`.
pub(crate) fn metadata(fields: &Object) -> Map<String, Value> {
    let set = fields.iter().filter(|(_, value)| value.get() != "null");
    set.map(|(name, value)| (name.clone(), to_value(value))).collect()
}

/// Adds the fields of `later` to `target`. A `null` does not replace a field of `target`.
pub(crate) fn overlay(target: &mut Object, later: Object) {
    for (name, value) in later {
        if value.get() != "null" || !target.contains_key(&name) {
            target.insert(name, value);
        }
    }
}
