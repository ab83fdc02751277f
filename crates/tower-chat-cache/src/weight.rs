//! Estimates of the memory of messages.

use std::sync::Arc;

use serde_json::{Map, Value};
use tower_chat_core::{MediaSource, Message, Native, Part, ToolCall, store::HistorySummary};

/// The estimated size of a cache entry without its messages, in bytes.
pub(crate) const CONVERSATION: u64 = 512;

/// The estimated size of a message without its content, in the history and in derived data, in
/// bytes.
const MESSAGE: u64 = 256;

/// The estimated size of a part, or of a JSON value, without its content, in bytes.
const PART: u64 = 96;

pub(crate) fn of_messages<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> u64 {
    messages.into_iter().map(|message| of_message(message)).sum()
}

pub(crate) fn of_summary(summary: &HistorySummary) -> u64 {
    MESSAGE + length(&summary.text) + summary.made_by.as_deref().map_or(0, length)
}

fn of_message(message: &Message) -> u64 {
    let author = message.author.as_ref().map_or(0, |author| length(author));
    MESSAGE + author + of_parts(&message.parts) + of_object(&message.metadata)
}

fn of_parts(parts: &[Part]) -> u64 {
    parts.iter().map(of_part).sum()
}

fn of_part(part: &Part) -> u64 {
    PART + match part {
        Part::Text(text) => length(&text.text) + of_native(text.native.as_ref()),
        Part::Reasoning(reasoning) => {
            length(&reasoning.text) + of_native(reasoning.native.as_ref())
        }
        Part::ToolCall(call) => of_call(call),
        Part::ToolResult(result) => {
            let id = result.call_id.as_ref().map_or(0, |id| length(id));
            id + of_parts(&result.content) + of_native(result.native.as_ref())
        }
        Part::ApprovalRequest(request) => length(&request.id) + of_call(&request.call),
        Part::ApprovalResponse(response) => {
            let texts = [&response.arguments, &response.reason];
            let texts: u64 = texts.into_iter().flatten().map(|text| length(text)).sum();
            length(&response.request_id) + texts
        }
        Part::Media(media) => {
            let source = match &media.source {
                MediaSource::Url(text) | MediaSource::Base64(text) | MediaSource::File(text) => {
                    length(text)
                }
                _ => 0,
            };
            source + of_native(media.native.as_ref())
        }
        Part::Error(error) => length(&error.message),
        Part::Native(native) => of_native(Some(native)),
        _ => 0,
    }
}

fn of_call(call: &ToolCall) -> u64 {
    let id = call.id.as_ref().map_or(0, |id| length(id));
    id + length(&call.name) + length(&call.arguments) + of_native(call.native.as_ref())
}

fn of_native(native: Option<&Native>) -> u64 {
    native.map_or(0, |native| length(native.item.get()))
}

fn of_object(object: &Map<String, Value>) -> u64 {
    object.iter().map(|(name, value)| length(name) + of_value(value)).sum()
}

fn of_value(value: &Value) -> u64 {
    PART + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => length(text),
        Value::Array(values) => values.iter().map(of_value).sum(),
        Value::Object(object) => of_object(object),
    }
}

fn length(text: &str) -> u64 {
    text.len() as u64
}
