//! Converts the output of LangGraph's `JsonPlusSerializer` to JSON. The output is MessagePack, in
//! which an instance of a Python class is an extension that contains the name of the class and the
//! arguments of its constructor.

use base64::{Engine, engine::general_purpose::STANDARD};
use rmpv::{Value, decode::read_value_with_max_depth};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};
use tower_chat_core::{BoxError, RawJson};

/// The maximum depth of nested values, including extensions.
const MAX_DEPTH: usize = 120;

/// The extension types for instances of classes. The type determines how the instance is
/// constructed. The content is always a list that begins with the module, the class and the
/// arguments.
const CONSTRUCTORS: std::ops::RangeInclusive<i8> = 0..=5;

/// The extension type for the snapshot of a `DeltaChannel`, which contains the channel's value.
const SNAPSHOT: i8 = 7;

/// Converts a value to JSON. An instance of a class becomes the arguments of its constructor, and
/// an `Overwrite` becomes the object `{"__overwrite__": value}`.
pub(super) fn to_json(bytes: &[u8]) -> Result<RawJson, BoxError> {
    let value = decode(bytes, MAX_DEPTH)?;
    Ok(RawJson::from_value(&Json { value: &value, depth: MAX_DEPTH })?)
}

fn decode(mut bytes: &[u8], depth: usize) -> Result<Value, BoxError> {
    let value = read_value_with_max_depth(&mut bytes, depth)?;
    if bytes.is_empty() { Ok(value) } else { Err("there are bytes after the value".into()) }
}

/// A MessagePack value, which this type serializes as JSON.
struct Json<'a> {
    value: &'a Value,
    /// The number of further levels of nesting that are allowed.
    depth: usize,
}

impl Json<'_> {
    fn inner<'a>(&self, value: &'a Value) -> Json<'a> {
        Json { value, depth: self.depth.saturating_sub(1) }
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.depth == 0 {
            return Err(S::Error::custom(format!("it is nested deeper than {MAX_DEPTH} levels")));
        }
        match self.value {
            Value::Nil => serializer.serialize_unit(),
            Value::Boolean(flag) => serializer.serialize_bool(*flag),
            Value::Integer(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => serializer.serialize_u64(number),
                (None, Some(number)) => serializer.serialize_i64(number),
                (None, None) => Err(S::Error::custom("it has a number out of range")),
            },
            Value::F32(number) => float(f64::from(*number), serializer),
            Value::F64(number) => float(*number, serializer),
            Value::String(text) => match text.as_str() {
                Some(text) => serializer.serialize_str(text),
                None => Err(S::Error::custom("it has a text that is not UTF-8")),
            },
            Value::Binary(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&self.inner(item))?;
                }
                list.end()
            }
            Value::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(&key_text::<S>(key)?, &self.inner(value))?;
                }
                map.end()
            }
            Value::Ext(kind, bytes) => self.extension(*kind, bytes, serializer),
        }
    }
}

impl Json<'_> {
    fn extension<S: Serializer>(
        &self,
        kind: i8,
        bytes: &[u8],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let value = decode(bytes, self.depth).map_err(S::Error::custom)?;
        if kind == SNAPSHOT {
            return self.inner(&value).serialize(serializer);
        }
        if !CONSTRUCTORS.contains(&kind) {
            // A NumPy array, or an extension of a later release. Messages contain neither.
            return serializer.serialize_unit();
        }
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let [_module, class, made_of, ..] = items else {
            return Err(S::Error::custom("it has an extension without the name of a class"));
        };
        let overwritten = made_of.as_map().filter(|_| class.as_str() == Some("Overwrite"));
        let overwritten = overwritten
            .and_then(|fields| fields.iter().find(|(name, _)| name.as_str() == Some("value")));
        match overwritten {
            Some((_, value)) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(super::OVERWRITE, &self.inner(value))?;
                map.end()
            }
            None => self.inner(made_of).serialize(serializer),
        }
    }
}

/// Serializes a float. Infinities and `NaN`, which JSON does not have, become strings.
fn float<S: Serializer>(number: f64, serializer: S) -> Result<S::Ok, S::Error> {
    match number.is_finite() {
        true => serializer.serialize_f64(number),
        false => serializer.serialize_str(&number.to_string()),
    }
}

fn key_text<S: Serializer>(key: &Value) -> Result<String, S::Error> {
    match key {
        Value::String(_) => match key.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(S::Error::custom("it has a key that is not UTF-8")),
        },
        other => Ok(other.to_string()),
    }
}
