//! JSON arrays of numbered sources, read without changing a byte.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, IgnoredAny},
};
use serde_json::{Map, Value, value::RawValue};

use super::Uncited;

/// A source that a tool found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// Its text.
    pub content: String,
    /// The name of its content, under the key `content_id`; empty if it has none.
    pub content_id: String,
}

impl Source {
    /// A source with its number, if the item is one.
    pub(super) fn read(item: &str, number_key: &str, content_key: &str) -> Option<(u64, Self)> {
        let number = number_of(item, number_key)?;
        let fields: Map<String, Value> = serde_json::from_str(item).ok()?;
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        let content = text(content_key)?;
        Some((number, Self { content, content_id: text("content_id").unwrap_or_default() }))
    }
}

/// Whether a text can be an array of objects, at the cost of a look at its beginning.
pub(super) fn looks_like_sources(text: &str) -> bool {
    text.trim_start().strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'))
}

/// The text without the sources that are not cited; `None` if it stays as it is.
pub(super) fn compact(
    text: &str,
    number_key: &str,
    cited: &BTreeSet<u64>,
    uncited: &Uncited,
) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let numbers: Option<Vec<u64>> =
        items.iter().map(|item| number_of(item.get(), number_key)).collect();
    let numbers = numbers.filter(|numbers| !numbers.is_empty())?;
    if cited.is_empty() {
        return match uncited {
            Uncited::LeaveAlone => None,
            Uncited::Replace(sentence) => (sentence != text).then(|| sentence.clone()),
        };
    }
    let kept: Vec<&str> = items
        .iter()
        .zip(numbers)
        .filter(|(_, number)| cited.contains(number))
        .map(|(item, _)| item.get())
        .collect();
    (kept.len() < items.len()).then(|| format!("[{}]", kept.join(",")))
}

/// The number of an item: a JSON integer from 0 on, under this key of an object.
pub(super) fn number_of(item: &str, key: &str) -> Option<u64> {
    serde_json::Deserializer::from_str(item).deserialize_map(NumberUnder(key)).ok()?
}

/// Reads an object for the number under one key.
struct NumberUnder<'k>(&'k str);

impl<'de> de::Visitor<'de> for NumberUnder<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Option<u64>, A::Error> {
        let mut number = None;
        while let Some(is_number) = map.next_key_seed(IsKey(self.0))? {
            if is_number {
                let raw: &RawValue = map.next_value()?;
                number = raw.get().parse().ok();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(number)
    }
}

/// Compares a key without copying it.
struct IsKey<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for IsKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl de::Visitor<'_> for IsKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

/// The items of an array, up to its end or to the place where it was cut.
pub(super) fn items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    // Where the text is cut, what was read before it counts all the same.
    let _cut = serde_json::Deserializer::from_str(text).deserialize_seq(Gather(&mut items));
    items
}

struct Gather<'i, 't>(&'i mut Vec<&'t str>);

impl<'t> de::Visitor<'t> for Gather<'_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: de::SeqAccess<'t>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&'t RawValue>()? {
            self.0.push(item.get());
        }
        Ok(())
    }
}
