//! The schema of a type, and the deserialization of values of the type.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_chat_core::check_unique_keys;

use crate::{
    leniency::find_misfit,
    nulls::remove_nulls_of_missing,
    portable::{PortableSchema, Root, VALUE},
};

/// The schema of a type, in its original and its portable form.
#[derive(Debug, Clone)]
pub struct TypeSchema {
    name: String,
    description: Option<String>,
    of_type: Value,
    sent: PortableSchema,
}

impl TypeSchema {
    /// Creates the schema of `T`. The name and the description of the schema are the name and the
    /// documentation of `T`.
    pub fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
        let mut of_type: Value = settings.into_generator().into_root_schema_for::<T>().into();
        let mut take = |name: &str| match of_type.as_object_mut()?.remove(name)? {
            Value::String(text) => Some(text),
            _ => None,
        };
        let description = take("description");
        let name = take("title").unwrap_or_else(|| T::schema_name().into_owned());
        let sent = PortableSchema::of(&of_type);
        Self { name, description, of_type, sent }
    }

    /// Returns the name of the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the documentation of the type.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the original schema of the type, with its limits.
    pub fn of_type(&self) -> &Value {
        &self.of_type
    }

    /// Returns the portable schema, which is sent to a provider.
    pub fn portable(&self) -> &Value {
        &self.sent.schema
    }

    /// Returns whether the schema is closed: each object in the schema accepts only the keys that
    /// the schema lists. The setting `strict` of a tool requires a closed schema. The schema of a
    /// type without maps is closed.
    pub fn is_closed(&self) -> bool {
        self.sent.is_closed
    }

    /// Converts JSON that conforms to the portable schema to a value that conforms to the type's
    /// original schema.
    ///
    /// # Errors
    ///
    /// If the text
    ///
    /// - is not JSON, or has an object with the same key twice;
    /// - lacks the field `value`, although the portable schema puts the value in this field;
    /// - has an array where the type has an object;
    /// - has a number that is too large for the `f32` of the type.
    pub fn value(&self, json: &str) -> Result<Value, ParseError> {
        let mut value: Value = serde_json::from_str(json).map_err(ParseError::NotJson)?;
        check_unique_keys(json).map_err(ParseError::RepeatedKey)?;
        match self.sent.root {
            Root::Itself => {}
            Root::Nothing if value.is_object() => value = Value::Null,
            Root::Nothing => {}
            Root::Wrapped => {
                value = value.get_mut(VALUE).map(Value::take).ok_or(ParseError::NoValue)?;
            }
        }
        remove_nulls_of_missing(&mut value, &self.of_type);
        match find_misfit(&value, &self.of_type) {
            Some(misfit) => Err(ParseError::Field { field: misfit.path, source: misfit.error }),
            None => Ok(value),
        }
    }

    /// Deserializes a value of the type from JSON that conforms to the portable schema.
    ///
    /// # Errors
    ///
    /// If the text is not JSON or does not represent a value of the type. The error names the
    /// field.
    pub fn parse<T: DeserializeOwned>(&self, json: &str) -> Result<T, ParseError> {
        let value = self.value(json)?;
        serde_path_to_error::deserialize(value).map_err(|error| {
            let field = error.path().to_string();
            ParseError::Field { field, source: error.into_inner() }
        })
    }
}

/// The reason why a text does not represent a value of a type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text is not JSON.
    #[error("the text is not JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    /// An object has a key twice. Parsers differ in which of the two values they use.
    #[error(transparent)]
    RepeatedKey(serde_json::Error),
    /// The text lacks the field `value`, although the portable schema puts the value in this field.
    #[error("the object has no field `{VALUE}`")]
    NoValue,
    /// A field is missing, unknown or of another type.
    #[error("{}{source}", of_field(field))]
    #[non_exhaustive]
    Field {
        /// The path to the field, such as `dishes[1].name`; `.` or an empty text for the whole
        /// value.
        field: String,
        /// The fault of the value.
        source: serde_json::Error,
    },
}

fn of_field(field: &str) -> String {
    if field == "." || field.is_empty() { String::new() } else { format!("`{field}`: ") }
}
