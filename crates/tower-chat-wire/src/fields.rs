//! A JSON object whose values are left as the text they came in.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use tower_chat_core::{Native, RawJson};

use crate::WireError;

/// The fields of a JSON object; of a name that occurs twice the last counts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fields(BTreeMap<String, RawJson>);

impl Fields {
    /// The fields of an object; `what` names it in the error.
    pub(crate) fn parse(json: &str, what: &'static str) -> Result<Self, WireError> {
        serde_json::from_str(json).map_err(|source| WireError::Json {
            what,
            expected: "a JSON object",
            source,
        })
    }

    /// The fields of a native item, if it belongs to the wire and is an object.
    pub(crate) fn of_native(native: Option<&Native>, wire: &str) -> Option<Self> {
        native.filter(|native| &*native.wire == wire)?.item.parse().ok()
    }

    /// The fields as a native item of the wire.
    pub(crate) fn into_native(self, wire: impl Into<Arc<str>>) -> Native {
        Native::new(wire, raw(&self))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawJson> {
        self.0.get(name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the field is there and is this text.
    pub(crate) fn is_text(&self, name: &str, text: &str) -> bool {
        self.text(name).is_some_and(|found| found == text)
    }

    /// The field, if it is a text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        as_text(self.get(name)?)
    }

    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.get() == "null")
    }

    /// How many fields there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the field out.
    pub(crate) fn take(&mut self, name: &str) -> Option<RawJson> {
        self.0.remove(name)
    }

    /// Takes the field out if it is a text; anything else stays.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        self.0.remove(name);
        Some(text)
    }

    /// Takes the field out if its value is such.
    pub(crate) fn take_if(&mut self, name: &str, is: impl FnOnce(&RawJson) -> bool) {
        if self.get(name).is_some_and(is) {
            self.0.remove(name);
        }
    }

    /// All fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn set(&mut self, name: &str, value: RawJson) {
        self.0.insert(name.to_owned(), value);
    }

    /// Sets the field to a text, if there is one; else leaves it as it is.
    pub(crate) fn set_text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.set(name, raw(text));
        }
    }

    /// Adds the fields of another object; its own count.
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

/// The value as a text, if it is one.
pub(crate) fn as_text(value: &RawJson) -> Option<String> {
    value.get().starts_with('"').then(|| value.parse().ok()).flatten()
}

/// The JSON of a text, a list or an object.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> RawJson {
    #[allow(clippy::expect_used, reason = "texts, lists and maps with text keys always have one")]
    RawJson::from_value(&value).expect("the value has a JSON form")
}
