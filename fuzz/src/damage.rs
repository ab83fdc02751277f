//! Creates damaged inputs: changes bytes, or JSON values, in one of the seed inputs of a target.

#![allow(clippy::indexing_slicing, reason = "an index out of range is a fault of the test")]

use serde_json::{Value, json};
use tower_chat_testkit::Rng;

/// Words that often break parsers.
const WORDS: [&str; 32] = [
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "4294967296",
    "0.1",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\u{1f600}",
    "{",
    "}",
    "[",
    "]",
    "{}",
    "[]",
    "\"\"",
    ",",
    ":",
    "\n",
    "\r\n\r\n",
    "data: ",
    "data: [DONE]\n\n",
    "event: error\n",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":",
];
/// The numbers of levels to which a value is nested. Parsers accept at most 120 or 128 levels.
const LEVELS: [usize; 7] = [60, 119, 126, 130, 1000, 10_000, 100_000];
/// The maximum number of bytes that repeated items add to a list.
const MANY_BYTES: usize = 64 * 1024;
/// A placeholder in a value, which [`damage_value`] replaces with a nested value. No seed input
/// contains this text.
const NESTED: &str = "<nested>";
/// The maximum length of an input, in bytes.
const MAX_INPUT_BYTES: usize = 256 * 1024;

/// Returns one of the seed inputs, damaged one or several times.
pub(crate) fn damaged(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.one_of(seeds).cloned().unwrap_or_default();
    for _ in 0..=rng.below(4) {
        bytes = match rng.below(3) {
            0 => damage_bytes(bytes, seeds, rng),
            _ => damage_json(&bytes, rng).unwrap_or_else(|bytes| damage_bytes(bytes, seeds, rng)),
        };
    }
    bytes.truncate(MAX_INPUT_BYTES);
    bytes
}

fn damage_bytes(mut bytes: Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(bytes.len() + 1);
    let end = (at + rng.below(64)).min(bytes.len());
    match rng.below(8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *rng.one_of(&[0, 0x7f, 0x80, 0xff, b'"', b'\n']).unwrap_or(&0);
            }
        }
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(end..end, again);
        }
        5 => {
            let other = rng.one_of(seeds).cloned().unwrap_or_default();
            let from = rng.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let word = rng.one_of(&WORDS).copied().unwrap_or_default();
            bytes.splice(at..at, word.bytes());
        }
    }
    bytes
}

/// Damages one JSON value in the bytes: the whole input, or a value in one line or event. If the
/// bytes contain no JSON value, returns them unchanged as the error.
fn damage_json(bytes: &[u8], rng: &mut Rng) -> Result<Vec<u8>, Vec<u8>> {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        return Ok(damage_value(value, rng).into_bytes());
    }
    let starts: Vec<usize> = bytes
        .iter()
        .enumerate()
        .filter(|(at, byte)| **byte == b'{' && (*at == 0 || b"\n :"[..].contains(&bytes[at - 1])))
        .map(|(at, _)| at)
        .collect();
    let Some(&start) = rng.one_of(&starts) else { return Err(bytes.to_vec()) };
    let mut values = serde_json::Deserializer::from_slice(&bytes[start..]).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else { return Err(bytes.to_vec()) };
    let end = start + values.byte_offset();
    Ok([&bytes[..start], damage_value(value, rng).as_bytes(), &bytes[end..]].concat())
}

fn damage_value(mut value: Value, rng: &mut Rng) -> String {
    if !rng.one_in(64) {
        replace_value(&mut value, rng);
        return value.to_string();
    }
    let count = nodes(&value);
    if let Some(replaced) = node(&mut value, &mut rng.below(count)) {
        *replaced = NESTED.into();
    }
    let levels = rng.one_of(&LEVELS).copied().unwrap_or_default();
    let (open, inner, close) = match rng.below(3) {
        0 => ("[", "", "]"),
        1 => (r#"{"a":"#, "null", "}"),
        _ => (r#"{"type":[1,"#, r#"{"text":""}"#, "]}"),
    };
    let nested = [&*open.repeat(levels), inner, &close.repeat(levels)].concat();
    let nested = if rng.one_in(2) { nested } else { json!(nested).to_string() };
    value.to_string().replace(&json!(NESTED).to_string(), &nested)
}

fn replace_value(root: &mut Value, rng: &mut Rng) {
    let count = nodes(root);
    let other = node(root, &mut rng.below(count)).cloned().unwrap_or_default();
    let Some(value) = node(root, &mut rng.below(count)) else { return };
    match rng.below(12) {
        0 => *value = Value::Null,
        1 => *value = json!(-1),
        2 => *value = json!(u64::MAX),
        3 => *value = json!(1.5e300),
        4 => *value = json!(""),
        5 => *value = json!("\u{0}\u{1f600}\"\\"),
        6 => *value = json!([value.clone(), other]),
        7 => *value = json!({"type": value.clone(), "content": other}),
        8 => *value = json!(value.to_string()),
        9 => *value = other,
        _ => match value {
            Value::Object(fields) if !fields.is_empty() => {
                let names: Vec<String> = fields.keys().cloned().collect();
                let name = &names[rng.below(names.len())];
                let removed = fields.remove(name).unwrap_or_default();
                if rng.one_in(2) {
                    fields.insert(names[rng.below(names.len())].clone(), removed);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                let item = items[rng.below(items.len())].clone();
                match rng.below(4) {
                    0 => drop(items.remove(rng.below(items.len()))),
                    1 => items.insert(rng.below(items.len()), item),
                    2 => items.extend(std::iter::repeat_n(item, 20)),
                    _ => {
                        let max_bytes = if rng.one_in(16) { MANY_BYTES } else { MANY_BYTES / 64 };
                        let many = max_bytes / item.to_string().len();
                        items.extend(std::iter::repeat_n(item, many));
                    }
                }
            }
            Value::String(text) => *text = text.chars().rev().take(20).collect(),
            _ => *value = other,
        },
    }
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(fields) => fields.values().map(nodes).sum(),
        _ => 0,
    }
}

/// Returns the value with this number, counted from 0 in depth-first order from the root.
fn node<'v>(value: &'v mut Value, number: &mut usize) -> Option<&'v mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, number)),
        Value::Object(fields) => fields.values_mut().find_map(|item| node(item, number)),
        _ => None,
    }
}
