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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower_chat_core::{
        ApprovalRequest, ErrorPart, Media, MessageId, RawJson, Reasoning, Role, RunId, ToolResult,
    };

    use super::*;

    /// Creates a message that contains this text.
    type MessageWith = fn(&str) -> Message;

    const TEXTS: [(&str, MessageWith); 15] = [
        ("text", |text| of(Part::text(text))),
        ("reasoning", |text| of(Part::Reasoning(Reasoning::new(text)))),
        ("call id", |text| of(call(text, "tool", "{}").into())),
        ("tool", |text| of(call("c", text, "{}").into())),
        ("arguments", |text| of(call("c", "tool", text).into())),
        ("result id", |text| of(ToolResult::new(text, "done").into())),
        ("result", |text| of(ToolResult::new("c", text).into())),
        ("request id", |text| of(request(text, "tool").into())),
        ("requested tool", |text| of(request("r", text).into())),
        ("response", |text| of(request("r", "tool").reject(text).into())),
        ("edited arguments", |text| of(request("r", "tool").approve_with(text).into())),
        ("media", |text| of(Part::Media(Media::new("image/png", MediaSource::Url(text.into()))))),
        ("error", |text| of(Part::Error(ErrorPart::new(text)))),
        ("native", |text| {
            of(Part::Native(Native::new("wire", RawJson::from_value(&json!(text)).unwrap())))
        }),
        ("metadata", |text| {
            let mut message = Message::user("hello");
            message.metadata.insert("key".into(), json!([{ "inner": text }]));
            message
        }),
    ];

    fn of(part: Part) -> Message {
        Message::new(Role::Assistant, vec![part])
    }

    fn call(id: &str, tool: &str, arguments: &str) -> ToolCall {
        ToolCall::new(id, tool, arguments)
    }

    fn request(id: &str, tool: &str) -> ApprovalRequest {
        ApprovalRequest::new(id, call("c", tool, "{}"), true)
    }

    #[test]
    fn a_longer_text_of_any_kind_in_a_message_adds_its_length() {
        for (name, message) in TEXTS {
            let [short, long] = ["", &*"x".repeat(1_000)].map(|text| of_message(&message(text)));
            assert_eq!(long, short + 1_000, "{name}");
            assert!(short > MESSAGE, "{name}");
        }
    }

    #[test]
    fn a_longer_text_or_model_name_of_a_summary_adds_its_length() {
        let last = MessageId { run: RunId::new(), index: 1 };
        let summary = |text: &str, model: &str| {
            HistorySummary::new(2, last, text).with_made_by(Arc::from(model))
        };
        let short = of_summary(&summary("", ""));
        assert_eq!(of_summary(&summary("12345", "")), short + 5);
        assert_eq!(of_summary(&summary("", "123")), short + 3);
    }
}
