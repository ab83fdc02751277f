//! Deserializes calls, results, and lists of them from the JSON forms that other systems use.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use tower_chat_core::Reasoning;

use super::row::{AggregateCall, AggregateResult};

/// The unread fields of a call or a result. A result inside a call has the same fields.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Stored(BTreeMap<String, Box<RawValue>>);

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct StoredCall(Stored);

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct StoredResult(Stored);

/// Ignored fields of laravel/ai: the type, additional ids, and summaries of reasoning.
const WITHOUT_MEANING: [&str; 4] = ["type", "result_id", "reasoning_id", "reasoning_summary"];

impl Stored {
    /// Removes these fields, and returns the value of the first one that is not `null`.
    fn take<T: de::DeserializeOwned>(&mut self, names: &[&str]) -> Result<Option<T>, String> {
        let mut found = None;
        for name in names {
            let Some(json) = self.0.remove(*name) else { continue };
            let value: Option<T> = serde_json::from_str(json.get())
                .map_err(|error| format!("its field {name} cannot be read: {error}"))?;
            found = found.or(value);
        }
        Ok(found)
    }

    /// Removes these fields, and returns the text of the first one that exists.
    fn take_text(&mut self, names: &[&str]) -> Result<Option<String>, String> {
        let mut found = None;
        for name in names {
            let Some(json) = self.0.remove(*name) else { continue };
            found = found.or(Some(text_of(&json)?));
        }
        Ok(found)
    }

    /// Removes the fields of a result. Returns its text and whether the tool failed, or `None`
    /// without these fields. A field whose value is `null` is a result without text.
    fn take_outcome(&mut self) -> Result<Option<(String, bool)>, String> {
        let text = self.take_text(&["result", "content"])?;
        let error = self.0.remove("error");
        let failed: Option<bool> = self.take(&["failed", "is_error"])?;
        let denied: Option<bool> = self.take(&["denied"])?;
        let successful: Option<bool> = self.take(&["successful"])?;
        let has_content = text.is_some() || error.is_some();
        let is_flagged = failed.or(denied).or(successful).is_some();
        if !has_content && !is_flagged {
            return Ok(None);
        }
        let error = error.filter(|it| !matches!(it.get(), "null" | "false" | "\"\""));
        let has_failed =
            error.is_some() || [failed, denied, successful.map(|it| !it)].contains(&Some(true));
        let mut content = text.unwrap_or_default();
        if let Some(error) = error.filter(|error| error.get() != "true") {
            let error = text_of(&error)?;
            if content.is_empty() {
                content = error;
            } else if !content.contains(&error) {
                content = format!("{content}\n{error}");
            }
        }
        Ok(Some((content, has_failed)))
    }

    /// Fails if unread fields remain, because one of them may contain the result.
    fn end(self, what: &str) -> Result<(), String> {
        let unknown = self.0.keys().filter(|name| !WITHOUT_MEANING.contains(&name.as_str()));
        let unknown: Vec<&str> = unknown.map(String::as_str).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(format!("{what} has fields of unknown meaning: {}", unknown.join(", ")))
    }
}

impl TryFrom<StoredCall> for AggregateCall {
    type Error = String;

    fn try_from(StoredCall(mut stored): StoredCall) -> Result<Self, String> {
        let id: Option<String> = stored.take(&["id"])?;
        let Some(name) = stored.take::<String>(&["name"])? else {
            return Err("a call has no name".to_owned());
        };
        let arguments = stored.take_text(&["arguments"])?.unwrap_or_default();
        let native = stored.take(&["native"])?;
        let result = stored.take_outcome()?.map(|(content, failed)| AggregateResult {
            call_id: id.clone(),
            name: Some(name.clone()),
            content,
            failed,
            native: None,
        });
        stored.end("a call")?;
        Ok(Self { id, name, arguments, native, result })
    }
}

impl TryFrom<StoredResult> for AggregateResult {
    type Error = String;

    fn try_from(StoredResult(mut stored): StoredResult) -> Result<Self, String> {
        // In some systems, the field `id` of a result is the id of the call.
        let call_id = stored.take(&["call_id", "tool_call_id", "id"])?;
        let name = stored.take(&["name"])?;
        let native = stored.take(&["native"])?;
        let (content, failed) = stored.take_outcome()?.unwrap_or_default();
        // The arguments are also in the call that this result answers.
        stored.0.remove("arguments");
        stored.end("a result")?;
        Ok(Self { call_id, name, content, failed, native })
    }
}

/// Returns the content of a JSON string, an empty text for `null`, and the JSON of any other value.
fn text_of(json: &RawValue) -> Result<String, String> {
    match json.get() {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => serde_json::from_str(text).map_err(|e| e.to_string()),
        other => Ok(other.to_owned()),
    }
}

/// Deserializes reasoning, which is a list or a single text.
pub(super) fn reasoning<'de, D>(deserializer: D) -> Result<Vec<Reasoning>, D::Error>
where
    D: Deserializer<'de>,
{
    let json = Box::<RawValue>::deserialize(deserializer)?;
    if json.get().starts_with('"') {
        let text: String = serde_json::from_str(json.get()).map_err(de::Error::custom)?;
        if !text.trim_start().starts_with(['[', '{']) {
            return Ok((!text.is_empty()).then(|| Reasoning::new(text)).into_iter().collect());
        }
    }
    list_in(json.get()).map_err(de::Error::custom)
}

fn list_in<T: de::DeserializeOwned>(json: &str) -> Result<Vec<T>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let list = list(&mut deserializer)?;
    deserializer.end()?;
    Ok(list)
}

/// Deserializes a JSON list, an object whose keys are numbers, or a string with one of these.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: de::DeserializeOwned,
{
    deserializer.deserialize_any(ListVisitor(PhantomData))
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: de::DeserializeOwned> de::Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, or an object whose keys are numbers")
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        // A list is encoded as a string at most once.
        if text.trim_start().starts_with('"') {
            return Err(E::invalid_value(de::Unexpected::Str(text), &self));
        }
        list_in(text).map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(list)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Vec<T>, A::Error> {
        let mut keyed: Vec<(u64, T)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let number = key.parse().map_err(|_| {
                de::Error::invalid_value(de::Unexpected::Str(&key), &"a number as key")
            })?;
            keyed.push((number, map.next_value()?));
        }
        keyed.sort_by_key(|(number, _)| *number);
        Ok(keyed.into_iter().map(|(_, item)| item).collect())
    }
}
