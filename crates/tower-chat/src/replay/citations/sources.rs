//! JSON arrays of numbered sources, read without changing a byte.

use std::{collections::BTreeSet, fmt};

use serde::{Deserializer, de};
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
    let mut compacted = String::with_capacity(text.len());
    let mut kept = 0;
    for item in &items {
        if cited.contains(&number_of(item.get(), number_key)?) {
            compacted.push(if kept == 0 { '[' } else { ',' });
            compacted.push_str(item.get());
            kept += 1;
        }
    }
    match (cited.is_empty(), uncited) {
        _ if kept == items.len() => None,
        (true, Uncited::LeaveAlone) => None,
        (true, Uncited::Replace(sentence)) => (sentence != text).then(|| sentence.clone()),
        (false, _) if kept == 0 => Some("[]".to_owned()),
        (false, _) => {
            compacted.push(']');
            compacted.shrink_to_fit();
            Some(compacted)
        }
    }
}

/// The number of an item: a JSON integer from 0 on, under this key of an object. Of a key that
/// comes twice the first one counts.
///
/// The item has been found to be JSON before, so its keys are looked at up to this one and no
/// further; this is the inner loop of compaction.
pub(super) fn number_of(item: &str, key: &str) -> Option<u64> {
    let mut rest = item.strip_prefix('{')?.trim_start();
    while rest.starts_with('"') {
        let (name, after) = split_value(rest)?;
        let (value, after) = split_value(after.trim_start().strip_prefix(':')?.trim_start())?;
        if is_text(name, key) {
            return value.parse().ok();
        }
        rest = after.trim_start().strip_prefix(',')?.trim_start();
    }
    None
}

/// A JSON value at the beginning of a text, and what follows it.
fn split_value(text: &str) -> Option<(&str, &str)> {
    let end = match text.as_bytes().first()? {
        b'"' => 1 + end_of_string(text.get(1..)?)?,
        b'{' | b'[' => end_of_nested(text)?,
        _ => text.bytes().position(ends_scalar).unwrap_or(text.len()),
    };
    text.split_at_checked(end)
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')
}

/// Where the string ends inside of which the text begins, its quote included.
fn end_of_string(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let (inside, _) = text.get(from..)?.split_once('"')?;
        from += inside.len() + 1;
        let escapes = inside.bytes().rev().take_while(|&byte| byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some(from);
        }
    }
}

/// Where the object or array ends with which the text begins.
fn end_of_nested(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut from = 0;
    loop {
        let byte = text.as_bytes().get(from)?;
        from += 1;
        match byte {
            b'"' => from += end_of_string(text.get(from..)?)?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => continue,
        }
        if depth == 0 {
            return Some(from);
        }
    }
}

/// Whether a JSON string holds this text.
fn is_text(json: &str, text: &str) -> bool {
    let inside = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
    match inside {
        Some(inside) if !inside.contains('\\') => inside == text,
        _ => serde_json::from_str::<String>(json).is_ok_and(|held| held == text),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::generated::Numbers;

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
            let mut numbers = Numbers::of(seed);
            let space = |numbers: &mut Numbers| ["", "", " ", "\n\t "][numbers.below(4)];
            let member = |numbers: &mut Numbers| {
                let (key, value) = (keys[numbers.below(7)], values[numbers.below(values.len())]);
                let spaces: Vec<&str> = (0..4).map(|_| space(numbers)).collect();
                format!("{}{key}{}:{}{value}{}", spaces[0], spaces[1], spaces[2], spaces[3])
            };
            let members: Vec<String> =
                (0..numbers.below(5)).map(|_| member(&mut numbers)).collect();
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
