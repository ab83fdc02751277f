//! JSON objects with their values left as text.

use tower_chat_core::RawJson;
pub(crate) use tower_chat_wire::stream::Object;

/// The JSON of a text, a list or an object.
pub(crate) fn raw<T: serde::Serialize + ?Sized>(value: &T) -> RawJson {
    #[allow(clippy::expect_used, reason = "texts, lists and maps with text keys always have one")]
    RawJson::from_value(&value).expect("the value has a JSON form")
}
