//! Converts contents that occur in the formats of several frameworks: media, times, and reasoning
//! with the signature of its provider. A model client sends such a signature only to that provider.

use std::time::SystemTime;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde_json::{Value, json};
use tower_chat_core::{Media, MediaSource, Message, Part, Reasoning, ToolCall};
use tower_chat_wire::{WireError, anthropic, gemini, openai_responses};

use crate::{error::WrongValue, node::Node};

/// Returns media that refer to a URL, or that contain the bytes of a `data:` URL.
pub(crate) fn media(url: String, media_type: Option<String>) -> Media {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (found, source) = match inline {
        Some((media_type, data)) => {
            (Some(media_type.to_owned()), MediaSource::Base64(data.to_owned()))
        }
        None => (None, MediaSource::Url(url)),
    };
    let found = found.filter(|found| !found.is_empty());
    let media_type = found.or(media_type).unwrap_or_else(|| UNKNOWN_MEDIA.to_owned());
    Media::new(media_type, source)
}

/// The media type of unknown content (RFC 2046).
pub(crate) const UNKNOWN_MEDIA: &str = "application/octet-stream";

/// Parses a time. A time without an offset is interpreted as UTC.
pub(crate) fn time(node: &Node) -> Result<SystemTime, WrongValue> {
    let text = node.text()?;
    let time = text.parse::<Timestamp>().or_else(|_| {
        let civil = text.parse::<DateTime>()?;
        civil.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    time.map(SystemTime::from).map_err(|_| node.wrong("a time"))
}

/// The data with which a provider accepts its own reasoning in a later request.
#[derive(Debug)]
pub(crate) enum Signature {
    None,
    Anthropic(String),
    /// The encrypted text of reasoning that Anthropic has redacted.
    AnthropicRedacted(String),
    OpenAi {
        id: String,
        encrypted: Option<String>,
    },
    Gemini(String),
}

/// Returns a reasoning part in the form that the parser of the provider's JSON would return.
pub(crate) fn reasoning(text: String, signature: Signature) -> Part {
    let read = match &signature {
        Signature::None => None,
        Signature::Anthropic(signature) => {
            of_anthropic(&json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        Signature::AnthropicRedacted(data) => {
            of_anthropic(&json!({"type": "redacted_thinking", "data": data}))
        }
        Signature::OpenAi { id, encrypted } => {
            let text = (!text.is_empty()).then(|| json!({"type": "summary_text", "text": text}));
            let summary: Vec<_> = text.into_iter().collect();
            let mut item = json!({"type": "reasoning", "id": id, "summary": summary});
            if let (Some(item), Some(encrypted)) = (item.as_object_mut(), encrypted) {
                item.insert(ENCRYPTED.to_owned(), json!(encrypted));
            }
            of_openai(&item)
        }
        Signature::Gemini(signature) => {
            of_gemini(&json!({"text": text, "thought": true, "thoughtSignature": signature}))
        }
    };
    read.unwrap_or_else(|| Reasoning::new(text).into())
}

/// Joins consecutive reasoning parts with the same OpenAI item id to one part. An item of OpenAI
/// contains a list of summaries, and frameworks store each summary as a separate part.
pub(crate) fn join_reasoning(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::with_capacity(parts.len());
    // The item of the last part in `joined`, and whether summaries were added to this item.
    let mut open: Option<(Value, bool)> = None;
    for part in parts {
        match (&mut open, openai_item(&part)) {
            (Some((whole, is_longer)), Some(item)) if whole.get("id") == item.get("id") => {
                append(whole, item);
                *is_longer = true;
            }
            (_, item) => {
                close(&mut joined, open.take());
                joined.push(part);
                open = item.map(|item| (item, false));
            }
        }
    }
    close(&mut joined, open);
    joined
}

/// Replaces the last part by the complete item, if summaries were added to the item.
fn close(parts: &mut [Part], open: Option<(Value, bool)>) {
    let Some((item, true)) = open else { return };
    if let (Some(last), Some(whole)) = (parts.last_mut(), of_openai(&item)) {
        *last = whole;
    }
}

/// Adds the summaries and the encrypted content of `item` to `whole`, which has the same id.
fn append(whole: &mut Value, mut item: Value) {
    let more = item.get_mut("summary").map(Value::take);
    if let (Some(Value::Array(summary)), Some(Value::Array(more))) =
        (whole.get_mut("summary"), more)
    {
        summary.extend(more);
    }
    if let (Some(whole), Some(encrypted)) = (whole.as_object_mut(), item.get_mut(ENCRYPTED)) {
        whole.insert(ENCRYPTED.to_owned(), encrypted.take());
    }
}

const ENCRYPTED: &str = "encrypted_content";

/// Returns the OpenAI item of a part, if the part is reasoning by OpenAI.
fn openai_item(part: &Part) -> Option<Value> {
    let Part::Reasoning(reasoning) = part else { return None };
    let native = reasoning.native.as_ref()?;
    (&*native.wire == openai_responses::WIRE).then(|| native.item.parse().ok())?
}

/// Returns the reasoning part for an OpenAI item.
fn of_openai(item: &Value) -> Option<Part> {
    first_part(openai_responses::parse_input(&json!([item]).to_string()))
}

/// Adds a thought signature to a call. Gemini requires this signature in later requests.
pub(crate) fn signed_call(mut call: ToolCall, signature: &str) -> ToolCall {
    let part = of_gemini(&json!({
        "functionCall": {"name": call.name, "args": {}},
        "thoughtSignature": signature,
    }));
    if let Some(Part::ToolCall(read)) = part {
        call.native = read.native;
    }
    call
}

fn of_anthropic(block: &Value) -> Option<Part> {
    let message = json!([{"role": "assistant", "content": [block]}]);
    first_part(anthropic::parse_messages(&message.to_string()))
}

fn of_gemini(part: &Value) -> Option<Part> {
    let contents = json!([{"role": "model", "parts": [part]}]);
    first_part(gemini::parse_contents(&contents.to_string()))
}

fn first_part(messages: Result<Vec<Message>, WireError>) -> Option<Part> {
    messages.ok()?.into_iter().next()?.parts.into_iter().next()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn of(id: &str, text: &str, encrypted: Option<&str>) -> Part {
        let encrypted = encrypted.map(str::to_owned);
        reasoning(text.to_owned(), Signature::OpenAi { id: id.to_owned(), encrypted })
    }

    #[test]
    fn reasoning_parts_are_joined_only_if_they_are_consecutive_parts_of_one_item() {
        let parts = vec![
            of("rs_1", "one", Some("gA")),
            of("rs_1", "", None),
            of("rs_1", "two", Some("gB")),
            of("rs_2", "three", None),
            Part::text("four"),
            of("rs_2", "five", None),
        ];
        let joined = join_reasoning(parts);
        let items: Vec<_> = joined.iter().map(openai_item).collect();
        let summary = |text| json!({"type": "summary_text", "text": text});
        let item = |id, summary: Value| json!({"type": "reasoning", "id": id, "summary": summary});
        let mut first = item("rs_1", json!([summary("one"), summary("two")]));
        first["encrypted_content"] = json!("gB");
        let three = item("rs_2", json!([summary("three")]));
        let five = item("rs_2", json!([summary("five")]));
        assert_eq!(items, [Some(first), Some(three), None, Some(five)]);
        let Part::Reasoning(first) = &joined[0] else { panic!("{joined:?}") };
        assert_eq!(first.text, "one\n\ntwo");
    }

    /// The test would take too long if each part caused the complete item to be parsed again.
    #[test]
    fn thousands_of_reasoning_parts_of_one_item_are_joined_in_linear_time() {
        let texts: Vec<_> = (0..5_000).map(|number| format!("thought {number}")).collect();
        let joined = join_reasoning(texts.iter().map(|text| of("rs_1", text, None)).collect());
        let Ok([Part::Reasoning(whole)]) = <[Part; 1]>::try_from(joined) else {
            panic!("one part")
        };
        assert_eq!(whole.text, texts.join("\n\n"));
    }
}
