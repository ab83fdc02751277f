//! JSON objects whose values are left as the text they came in.

use serde_json::{Map, Value};
use tower_chat_core::RawJson;
pub(crate) use tower_chat_wire::stream::Object;

/// The value as a text, if it is one.
pub(crate) fn as_text(value: &RawJson) -> Option<String> {
    value.get().starts_with('"').then(|| value.parse().ok()).flatten()
}

/// The field as a text, if it is there and is one.
pub(crate) fn text(object: &Object, name: &str) -> Option<String> {
    as_text(object.get(name)?)
}

/// The field, if it is there and not `null`.
pub(crate) fn take(object: &mut Object, name: &str) -> Option<RawJson> {
    object.remove(name).filter(|value| value.get() != "null")
}

/// The field taken out, if it is an object.
pub(crate) fn take_object(object: &mut Object, name: &str) -> Option<Object> {
    take(object, name)?.parse().ok()
}

/// The field as a text, if it is one; any other stays.
pub(crate) fn take_text(object: &mut Object, name: &str) -> Option<String> {
    let text = text(object, name)?;
    object.remove(name);
    Some(text)
}

/// The JSON of a text, a list or an object.
pub(crate) fn raw<T: serde::Serialize + ?Sized>(value: &T) -> RawJson {
    #[allow(clippy::expect_used, reason = "texts, lists and maps with text keys always have one")]
    RawJson::from_value(&value).expect("the value has a JSON form")
}

/// The value, parsed, for metadata; its text, if it is nested too deeply to be parsed.
pub(crate) fn to_value(value: &RawJson) -> Value {
    value.parse().unwrap_or_else(|_| Value::String(value.get().to_owned()))
}

/// What is left of an answer's fields, for metadata.
pub(crate) fn metadata(fields: &Object) -> Map<String, Value> {
    let said = fields.iter().filter(|(_, value)| value.get() != "null");
    said.map(|(name, value)| (name.clone(), to_value(value))).collect()
}

/// Adds fields; one that is not `null` takes the place of an earlier one.
pub(crate) fn overlay(whole: &mut Object, later: Object) {
    for (name, value) in later {
        if value.get() != "null" || !whole.contains_key(&name) {
            whole.insert(name, value);
        }
    }
}
