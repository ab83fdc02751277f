//! Metadata in the stored form of a message.

use std::fmt;

use serde::{
    Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// Deserializes metadata, each value separately.
///
/// `serde_json` reads values with up to 127 levels of nesting. In the stored form of a message, the
/// metadata is two levels deeper. If the message were deserialized as a whole, a message with a
/// value of 127 levels could be stored, but not read again.
pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<Map<String, Value>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_map(Metadata)
}

struct Metadata;

impl<'de> Visitor<'de> for Metadata {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut metadata = Map::new();
        while let Some((name, value)) = fields.next_entry::<String, &'de RawValue>()? {
            metadata.insert(name, serde_json::from_str(value.get()).map_err(A::Error::custom)?);
        }
        Ok(metadata)
    }
}
