//! The fields of a body, taken out one by one until what is left is what nobody knows.

use serde_json::{Map, Value};

use super::BodyError;

/// The fields of a body that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields that are set.
    pub(super) fn of(body: Value) -> Result<Self, BodyError> {
        match body {
            Value::Object(mut fields) => {
                fields.retain(|_, value| !value.is_null());
                Ok(Self(fields))
            }
            _ => Err(BodyError::Field { field: "fields", expected: "a JSON object" }),
        }
    }

    /// The field, whatever it is.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// The field as what a reader makes of it; where it makes nothing of it, the field stays.
    pub(super) fn take_as<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = read(self.0.get(name)?)?;
        self.0.remove(name);
        Some(value)
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        self.take_as(name, |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn number(&mut self, name: &str) -> Option<f64> {
        self.take_as(name, Value::as_f64)
    }

    pub(super) fn count(&mut self, name: &str) -> Option<u64> {
        self.take_as(name, Value::as_u64)
    }

    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        self.take_as(name, Value::as_bool)
    }

    pub(super) fn list(&mut self, name: &str) -> Option<Vec<Value>> {
        self.take_as(name, |value| value.as_array().cloned())
    }

    pub(super) fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// What was not taken.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.0
    }
}

/// Puts a field into a body, if there is something to put.
pub(super) fn set(body: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), value.into());
    }
}

/// Puts fields into a body in place of its own; a `null` takes one out.
pub(super) fn merge(body: &mut Map<String, Value>, fields: &Map<String, Value>) {
    for (name, value) in fields {
        if value.is_null() {
            body.remove(name);
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
}
