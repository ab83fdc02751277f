//! The fields of a body, which readers remove one by one. The remaining fields are unknown.

use serde_json::{Map, Value};

use tower_chat_core::RawJson;

use super::BodyError;
use crate::object::{Object, raw};

/// The fields of a body that no reader has removed yet.
#[derive(Debug, Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Parses the fields of a body, without those that are `null`. Omits the fields with the names
    /// `conversation`, because [`conversation_field`] reads them as JSON text.
    pub(crate) fn of_body(body: &str, conversation: &[&str]) -> Result<Self, BodyError> {
        let error = |_| BodyError::Field { field: "fields", expected: "a JSON object" };
        let mut object: Object = serde_json::from_str(body).map_err(error)?;
        object.retain(|name, _| !conversation.contains(&name.as_str()));
        let fields = object.into_iter().map(|(name, value)| Ok((name, value.parse()?)));
        let fields = fields.collect::<Result<Map<_, _>, _>>().map_err(error)?;
        Ok(Self::of_object(fields))
    }

    /// Creates the fields of an object, without those that are `null`.
    pub(crate) fn of_object(mut fields: Map<String, Value>) -> Self {
        fields.retain(|_, value| !value.is_null());
        Self(fields)
    }

    /// Removes and returns a field if `read` can read its value. Otherwise, the field remains.
    pub(crate) fn take_as<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = read(self.0.get(name)?)?;
        self.0.remove(name);
        Some(value)
    }

    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        self.take_as(name, |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn take_number(&mut self, name: &str) -> Option<f64> {
        self.take_as(name, Value::as_f64)
    }

    pub(crate) fn take_count(&mut self, name: &str) -> Option<u64> {
        self.take_as(name, Value::as_u64)
    }

    pub(crate) fn take_flag(&mut self, name: &str) -> Option<bool> {
        self.take_as(name, Value::as_bool)
    }

    pub(crate) fn take_list(&mut self, name: &str) -> Option<Vec<Value>> {
        self.take_as(name, |value| value.as_array().cloned())
    }

    pub(crate) fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Returns the fields that no reader has removed.
    pub(crate) fn into_remaining(self) -> Map<String, Value> {
        self.0
    }
}

/// Sets a field of a body if `value` is not `None`.
pub(crate) fn set(body: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), value.into());
    }
}

/// Adds `fields` to a body. A `null` removes the field of the body with the same name.
pub(crate) fn merge(body: &mut Map<String, Value>, fields: &Map<String, Value>) {
    for (name, value) in fields {
        if value.is_null() {
            body.remove(name);
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
}

/// Returns the JSON text of an object with the fields of `body` and the fields of `more`.
pub(crate) fn object_json<const N: usize>(
    body: &Map<String, Value>,
    more: [(&str, Option<RawJson>); N],
) -> RawJson {
    let options = body.iter().map(|(name, value)| (name.clone(), raw(value)));
    let more = more.into_iter().filter_map(|(name, json)| Some((name.to_owned(), json?)));
    raw(&options.chain(more).collect::<Object>())
}

/// Returns a field of the body as JSON text, or `None` if the field is missing or `null`.
pub(crate) fn conversation_field(body: &str, name: &str) -> Result<Option<RawJson>, BodyError> {
    let error = |_| BodyError::Field { field: "fields", expected: "a JSON object" };
    let mut object: Object = serde_json::from_str(body).map_err(error)?;
    Ok(object.remove(name).filter(|json| json.get() != "null"))
}
