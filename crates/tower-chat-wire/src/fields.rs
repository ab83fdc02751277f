//! A JSON object whose values are JSON text.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use tower_chat_core::{Native, RawJson};

use crate::WireError;

/// The fields of a JSON object. If a name occurs twice, the later value is used.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fields(BTreeMap<String, RawJson>);

impl Fields {
    /// Parses the fields of an object. The error names the object as `what`.
    pub(crate) fn parse(json: &str, what: &'static str) -> Result<Self, WireError> {
        serde_json::from_str(json).map_err(|source| WireError::Json {
            what,
            expected: "a JSON object",
            source,
        })
    }

    /// Returns the fields of a native item, if the item belongs to the wire and is an object.
    pub(crate) fn of_native(native: Option<&Native>, wire: &str) -> Option<Self> {
        native.filter(|native| &*native.wire == wire)?.item.parse().ok()
    }

    /// Converts the fields to a native item of the wire.
    pub(crate) fn into_native(self, wire: impl Into<Arc<str>>) -> Native {
        Native::new(wire, raw(&self))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawJson> {
        self.0.get(name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether the value of the field is this string.
    pub(crate) fn is_text(&self, name: &str, text: &str) -> bool {
        self.text(name).is_some_and(|found| found == text)
    }

    /// Returns the field if it is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        as_text(self.get(name)?)
    }

    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.get() == "null")
    }

    /// Returns the number of fields.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the field.
    pub(crate) fn take(&mut self, name: &str) -> Option<RawJson> {
        self.0.remove(name)
    }

    /// Removes and returns the field if it is a string. Any other field is not removed.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        self.0.remove(name);
        Some(text)
    }

    /// Removes the field if `is` accepts its value.
    pub(crate) fn take_if(&mut self, name: &str, is: impl FnOnce(&RawJson) -> bool) {
        if self.get(name).is_some_and(is) {
            self.0.remove(name);
        }
    }

    /// Iterates over all fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn set(&mut self, name: &str, value: RawJson) {
        self.0.insert(name.to_owned(), value);
    }

    /// Sets the field to the text. `None` does not change the field.
    pub(crate) fn set_text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.set(name, raw(text));
        }
    }

    /// Adds the fields of another object, which replace fields of the same name.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        let (first, rest): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(name, _)| matches!(name.as_str(), "role" | "type"));
        for (name, value) in first.into_iter().chain(rest) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Returns the value if it is a string.
pub(crate) fn as_text(value: &RawJson) -> Option<String> {
    value.get().starts_with('"').then(|| value.parse().ok()).flatten()
}

/// Serializes a string, a list or an object.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> RawJson {
    #[allow(clippy::expect_used, reason = "texts, lists and maps with text keys always have one")]
    RawJson::from_value(&value).expect("the value has a JSON form")
}
