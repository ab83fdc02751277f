//! Reads JSON arrays of numbered sources. The functions return slices of the original text, so that
//! the remaining items keep their bytes.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer as _,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Deserializer, Map, Value, value::RawValue};

use super::settings::Uncited;

/// A source that a tool found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// The text of the source.
    pub content: String,
    /// The value of the key `content_id`, which names the content. Empty if the item does not
    /// contain this key.
    pub content_id: String,
}

impl Source {
    pub(super) fn read(item: &str, number_key: &str, content_key: &str) -> Option<(u64, Self)> {
        let number = number_of(item, number_key)?;
        let fields: Map<String, Value> = serde_json::from_str(item).ok()?;
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        let content = text(content_key)?;
        Some((number, Self { content, content_id: text("content_id").unwrap_or_default() }))
    }
}

/// Returns whether a text begins like an array of objects.
pub(super) fn looks_like_sources(text: &str) -> bool {
    text.trim_start().strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'))
}

/// Returns the text without the sources that are not cited, or `None` if the text does not change.
pub(super) fn compact(
    text: &str,
    number_key: &str,
    cited: &BTreeSet<u64>,
    uncited: &Uncited,
) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let mut retained = Vec::new();
    for item in &items {
        if cited.contains(&number_of(item.get(), number_key)?) {
            retained.push(item.get());
        }
    }
    match (cited.is_empty(), uncited) {
        _ if retained.len() == items.len() => None,
        (true, Uncited::LeaveAlone) => None,
        (true, Uncited::Replace(sentence)) => (sentence != text).then(|| sentence.clone()),
        (false, _) => Some(format!("[{}]", retained.join(","))),
    }
}

/// Returns the number of an item: the value of this key, if the item is an object and the value is
/// a non-negative integer. If the object contains the key several times, the first value is used.
pub(super) fn number_of(item: &str, key: &str) -> Option<u64> {
    let members = Members { key, first: None };
    let mut json = Deserializer::from_str(item);
    let value = json.deserialize_map(members).ok()?;
    json.end().ok()?;
    value?.get().parse().ok()
}

/// The name of a member of an object, borrowed from the JSON text unless it contains escapes.
#[derive(Deserialize)]
struct Name<'j>(#[serde(borrow)] Cow<'j, str>);

/// Finds the first value of a key.
struct Members<'k, 'j> {
    key: &'k str,
    first: Option<&'j RawValue>,
}

impl<'j> Visitor<'j> for Members<'_, 'j> {
    type Value = Option<&'j RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'j>>(mut self, mut members: A) -> Result<Self::Value, A::Error> {
        while let Some((Name(name), value)) = members.next_entry()? {
            if name == self.key && self.first.is_none() {
                self.first = Some(value);
            }
        }
        Ok(self.first)
    }
}

/// Returns the complete items of an array, which may be truncated.
pub(super) fn items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let _cut = Deserializer::from_str(text).deserialize_seq(Items(&mut items));
    items
}

struct Items<'i, 'j>(&'i mut Vec<&'j str>);

impl<'j> Visitor<'j> for Items<'_, 'j> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.0.push(item.get());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::generated::Rng;

    /// Returns the first value of the key that `serde_json` finds in these members.
    fn number_in_value(members: &[String], key: &str) -> Option<u64> {
        let read = |member: &String| -> Map<String, Value> {
            serde_json::from_str(&format!("{{{member}}}")).unwrap()
        };
        members.iter().find_map(|member| read(member).remove(key))?.as_u64()
    }

    #[test]
    fn a_number_is_found_among_values_of_every_kind() {
        let values = [
            "0",
            "7",
            "-1",
            "1.0",
            "1e3",
            "18446744073709551615",
            "18446744073709551616",
            "true",
            "null",
            "\"\"",
            "\"7\"",
            r#""a\"b\\""#,
            r#""\\\\""#,
            r#""{[,:""#,
            "[]",
            "{}",
            "[[1],{}]",
            r#"{"n": 3}"#,
            r#"{"a": "}\"]", "b": [ "{" ]}"#,
            "\"日本\"",
            r#"[ 1 , "]" ]"#,
        ];
        let keys = [r#""n""#, r#""\u006e""#, r#""m""#, r#""""#, r#""n\"""#, r#""n ""#, r#""日""#];
        let mut found = 0;
        for seed in 0..5000 {
            let mut rng = Rng::of(seed);
            let space = |rng: &mut Rng| ["", "", " ", "\n\t "][rng.below(4)];
            let member = |rng: &mut Rng| {
                let (key, value) = (keys[rng.below(7)], values[rng.below(values.len())]);
                let spaces: Vec<&str> = (0..4).map(|_| space(rng)).collect();
                format!("{}{key}{}:{}{value}{}", spaces[0], spaces[1], spaces[2], spaces[3])
            };
            let members: Vec<String> = (0..rng.below(5)).map(|_| member(&mut rng)).collect();
            let item = format!("{{{}}}", members.join(","));
            let number = number_of(&item, "n");
            assert_eq!(number, number_in_value(&members, "n"), "{item}");
            found += usize::from(number.is_some());
        }
        assert!(found > 100);
    }

    #[test]
    fn an_item_that_is_not_an_object_has_no_source_number() {
        for item in ["7", "\"n\"", "[]", "null", r#"[{"n": 1}]"#] {
            assert_eq!(number_of(item, "n"), None);
        }
    }
}
