//! JSON objects with their values left as text.

use serde_json::Value;
use tower_chat_core::RawJson;
pub(crate) use tower_chat_wire::stream::Object;

/// The value as a text, if it is one.
pub(crate) fn as_text(value: &RawJson) -> Option<String> {
    value.get().starts_with('"').then(|| value.parse().ok()).flatten()
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
