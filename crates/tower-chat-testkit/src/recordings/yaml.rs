//! Converts YAML to JSON.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Parses the YAML documents of a file. A binary scalar becomes the object `{BINARY: "base64"}`, by
/// which it is distinguished from a string.
pub(super) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let text = with_local_tags(text);
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(|document| {
        let value = serde_yaml_ng::Value::deserialize(document).map_err(|e| e.to_string())?;
        json(value)
    });
    documents.collect()
}

/// The only field of the object that represents a binary scalar.
pub(super) const BINARY: &str = "!binary";

/// Replaces the tag `!!binary` by the local tag `!binary`. The deserializer does not report
/// `!!binary`, and would return the value as a string.
fn with_local_tags(text: &str) -> String {
    let mut local = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.split_once(": !!binary ") {
            Some((key, value)) if is_key(key) => {
                local.push_str(key);
                local.push_str(": !binary ");
                local.push_str(value);
            }
            _ => local.push_str(line),
        }
    }
    local
}

fn is_key(text: &str) -> bool {
    let key = text.trim_start_matches([' ', '-']);
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn json(value: serde_yaml_ng::Value) -> Result<Value, String> {
    use serde_yaml_ng::Value as Yaml;
    match value {
        Yaml::Null => Ok(Value::Null),
        Yaml::Bool(value) => Ok(Value::Bool(value)),
        Yaml::Number(number) => serde_json::to_value(&number)
            .ok()
            .filter(Value::is_number)
            .ok_or_else(|| format!("JSON cannot express the number {number}")),
        Yaml::String(text) => Ok(Value::String(text)),
        Yaml::Sequence(items) => items.into_iter().map(json).collect(),
        Yaml::Mapping(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match name {
                Yaml::String(name) => Ok((name, json(value)?)),
                other => Err(format!("the key {other:?} of a mapping is not a string")),
            });
            fields.collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }
        Yaml::Tagged(tagged) if tagged.tag == BINARY => match tagged.value {
            Yaml::String(text) => {
                Ok(Value::Object(Map::from_iter([(BINARY.to_owned(), Value::String(text))])))
            }
            other => Err(format!("a binary value is not a string: {other:?}")),
        },
        Yaml::Tagged(tagged) => Err(format!("the YAML tag {} is unknown", tagged.tag)),
    }
}
