//! What the formats of frameworks have in common: media, times, and reasoning with the provider's
//! signature, which goes back to that provider alone.

use std::time::SystemTime;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde_json::{Value, json};
use tower_chat_core::{Media, MediaSource, Message, Part, Reasoning, ToolCall};
use tower_chat_wire::{WireError, anthropic, gemini, openai_responses};

use crate::{error::WrongValue, node::Node};

/// Media behind an address, or inside of a `data:` URL.
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

/// The media type of what nothing is known of (RFC 2046).
pub(crate) const UNKNOWN_MEDIA: &str = "application/octet-stream";

/// A time with its offset, or one without, which is in UTC.
pub(crate) fn time(node: &Node) -> Result<SystemTime, WrongValue> {
    let text = node.text()?;
    let time = text.parse::<Timestamp>().or_else(|_| {
        let civil = text.parse::<DateTime>()?;
        civil.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    time.map(SystemTime::from).map_err(|_| node.wrong("a time"))
}

/// What a provider wants back with its reasoning.
#[derive(Debug)]
pub(crate) enum Signature {
    None,
    Anthropic(String),
    /// The data of reasoning that Anthropic does not show.
    AnthropicRedacted(String),
    OpenAi {
        id: String,
        encrypted: Option<String>,
    },
    Gemini(String),
}

/// Reasoning, with the item of its provider, as that provider's wire reads it.
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
            of_openai(&json!({"type": "reasoning", "id": id, "summary": []}), &text, encrypted)
        }
        Signature::Gemini(signature) => {
            of_gemini(&json!({"text": text, "thought": true, "thoughtSignature": signature}))
        }
    };
    read.unwrap_or_else(|| Reasoning::new(text).into())
}

/// Adds reasoning to the parts of a message. OpenAI's is one item of several summaries, which frameworks
/// store as so many parts with one id.
pub(crate) fn push_reasoning(parts: &mut Vec<Part>, text: String, signature: Signature) {
    if let (Signature::OpenAi { id, encrypted }, Some(last)) = (&signature, parts.last_mut())
        && let Some(item) = openai_item(last).filter(|item| item.get("id") == Some(&json!(id)))
        && let Some(merged) = of_openai(&item, &text, encrypted)
    {
        *last = merged;
        return;
    }
    parts.push(reasoning(text, signature));
}

/// The item of OpenAI's reasoning, if the part is some.
fn openai_item(part: &Part) -> Option<Value> {
    let Part::Reasoning(reasoning) = part else { return None };
    let native = reasoning.native.as_ref()?;
    (&*native.wire == openai_responses::WIRE).then(|| native.item.parse().ok())?
}

/// Reasoning of OpenAI: an item, with one more summary.
fn of_openai(item: &Value, text: &str, encrypted: &Option<String>) -> Option<Part> {
    let mut item = item.clone();
    if !text.is_empty() {
        let summary = item.get_mut("summary")?.as_array_mut()?;
        summary.push(json!({"type": "summary_text", "text": text}));
    }
    if let Some(encrypted) = encrypted {
        item.as_object_mut()?.insert("encrypted_content".to_owned(), json!(encrypted));
    }
    first_part(openai_responses::parse_input(&json!([item]).to_string()))
}

/// A call with the thought signature that Gemini wants back with it.
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
