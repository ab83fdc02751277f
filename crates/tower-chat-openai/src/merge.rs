//! JSON objects with their values left as text, and how the pieces of a streamed one add up.

use std::collections::BTreeMap;

use serde_json::Value;
use tower_chat_core::RawJson;

/// A JSON object whose values are the text they came in.
pub(crate) type Object = BTreeMap<String, RawJson>;

/// The value as a text, if it is one.
pub(crate) fn as_text(value: &RawJson) -> Option<String> {
    value.get().starts_with('"').then(|| value.parse().ok()).flatten()
}

/// The field, if it is there and not `null`.
pub(crate) fn take(object: &mut Object, name: &str) -> Option<RawJson> {
    object.remove(name).filter(|value| value.get() != "null")
}

/// The field as a text, if it is one that is not empty; any other stays.
pub(crate) fn take_text(object: &mut Object, name: &str) -> Option<String> {
    let text = as_text(object.get(name)?)?;
    object.remove(name);
    Some(text).filter(|text| !text.is_empty())
}

/// The JSON of a text, a list or an object.
pub(crate) fn raw<T: serde::Serialize + ?Sized>(value: &T) -> RawJson {
    #[allow(clippy::expect_used, reason = "texts, lists and maps with text keys always have one")]
    RawJson::from_value(&value).expect("the value has a JSON form")
}

/// Adds the fields of a later piece to what earlier ones made.
///
/// Nothing is known of these fields but their kind: texts and lists go on, objects are merged,
/// anything else replaces what was there; `null` says nothing. A text that names something is
/// repeated, not continued.
pub(crate) fn merge(whole: &mut Object, piece: Object) {
    for (name, value) in piece {
        match whole.get_mut(&name) {
            Some(old) => {
                if let Some(new) = joined(&name, old, &value) {
                    *old = new;
                }
            }
            None => drop(whole.insert(name, value)),
        }
    }
}

fn joined(name: &str, old: &RawJson, new: &RawJson) -> Option<RawJson> {
    let first = |value: &RawJson| value.get().as_bytes().first().copied();
    match (first(old), first(new)) {
        (_, Some(b'n')) => None,
        (Some(b'"'), Some(b'"')) if !CONSTANT.contains(&name) => {
            Some(raw(&format!("{}{}", as_text(old)?, as_text(new)?)))
        }
        (Some(b'['), Some(b'[')) => {
            let mut list: Vec<RawJson> = old.parse().ok()?;
            list.extend(new.parse::<Vec<RawJson>>().ok()?);
            Some(raw(&list))
        }
        (Some(b'{'), Some(b'{')) => {
            let mut object: Object = old.parse().ok()?;
            merge(&mut object, new.parse().ok()?);
            Some(raw(&object))
        }
        _ => Some(new.clone()),
    }
}

/// Fields that name something: a later piece repeats them.
const CONSTANT: [&str; 9] = [
    "id",
    "type",
    "role",
    "name",
    "format",
    "model",
    "signature",
    "native_finish_reason",
    "finish_reason",
];

/// The value, parsed, for metadata.
pub(crate) fn to_value(value: &RawJson) -> Value {
    value.parse().unwrap_or(Value::Null)
}
