//! JSON arrays of numbered sources, read without changing a byte.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Uncited;
use crate::replay::json::Json;

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
    let (mut items, mut kept) = (0, Vec::new());
    let mut json = Json::of(text);
    json.array(|json| {
        let begin = json.offset();
        let number = number_in(json, number_key)?;
        items += 1;
        if cited.contains(&number) {
            kept.push(json.since(begin)?);
        }
        Some(())
    })?;
    json.end()?;
    match (cited.is_empty(), uncited) {
        _ if kept.len() == items => None,
        (true, Uncited::LeaveAlone) => None,
        (true, Uncited::Replace(sentence)) => (sentence != text).then(|| sentence.clone()),
        (false, _) => Some(array_of(&kept)),
    }
}

fn array_of(items: &[&str]) -> String {
    let commas = items.len().saturating_sub(1);
    let length = items.iter().map(|item| item.len()).sum::<usize>() + commas;
    let mut array = String::with_capacity("[]".len() + length);
    array.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            array.push(',');
        }
        array.push_str(item);
    }
    array.push(']');
    array
}

/// The number of an item: a JSON integer from 0 on, under this key of an object. Of a key that
/// comes twice the first one counts.
pub(super) fn number_of(item: &str, key: &str) -> Option<u64> {
    number_in(&mut Json::of(item), key)
}

/// Goes over an item that has a number.
fn number_in(json: &mut Json<'_>, key: &str) -> Option<u64> {
    let mut number = None;
    json.object(|name, value| {
        if number.is_none() && is_text(name, key) {
            number = Some(value);
        }
    })?;
    number?.parse().ok()
}

/// Whether a JSON string holds this text.
fn is_text(json: &str, text: &str) -> bool {
    let inside = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
    match inside {
        Some(inside) if !inside.as_bytes().contains(&b'\\') => inside == text,
        _ => serde_json::from_str::<String>(json).is_ok_and(|held| held == text),
    }
}

/// The items of an array, up to its end or to the position where it was cut.
pub(super) fn items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    // Where the text is cut, what was read before it counts all the same.
    let _cut = Json::of(text).array(|json| {
        items.push(json.value()?);
        Some(())
    });
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::generated::Rng;

    /// What a whole reader of JSON finds, among members of which the first of a key counts.
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
    fn what_is_no_object_has_no_number() {
        for item in ["7", "\"n\"", "[]", "null", r#"[{"n": 1}]"#] {
            assert_eq!(number_of(item, "n"), None);
        }
    }
}
