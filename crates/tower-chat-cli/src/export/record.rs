//! Implements `export --record`: writes all stored messages in the OpenAI chat format, with an
//! additional field.

use serde_json::{Value, json};
use tower_chat::{
    Message, Part, Role,
    message::{Messages, Native, RawJson, Reasoning},
};
use tower_chat_wire::openai_chat::{Audience, WIRE, render_message};

/// The field that contains the parts of a message which the OpenAI chat format cannot express:
/// approval requests and responses, calls and results of tools that a provider ran, errors, and
/// items in the formats of other providers.
const PARTS: &str = "x_parts";

/// Converts stored messages to the OpenAI chat format, with the field `x_parts`.
pub(super) fn messages(stored: &Messages) -> Vec<RawJson> {
    stored.iter().flat_map(|message| rendered(message)).collect()
}

fn rendered(message: &Message) -> Vec<RawJson> {
    let (rendered, unrendered) = split(message);
    let mut json = if unrendered.is_empty() || !rendered.parts.is_empty() {
        render_message(&rendered, Audience::Transcript)
    } else {
        Vec::new()
    };
    if unrendered.is_empty() {
        return json;
    }
    let mut value = match json.last().map(RawJson::parse::<Value>) {
        Some(Ok(value)) => {
            json.pop();
            value
        }
        Some(Err(_)) | None => json!({"role": message.role, "content": null}),
    };
    if let Some(fields) = value.as_object_mut() {
        fields.insert(PARTS.to_owned(), json!(unrendered));
    }
    json.extend(RawJson::from_value(&value));
    json
}

/// Divides a message into the parts that the OpenAI chat format can express, and the others.
fn split(message: &Message) -> (Message, Vec<Part>) {
    let by_provider = |id: &Option<String>| {
        let calls = message.parts.iter().filter_map(Part::as_tool_call);
        id.is_some() && calls.filter(|call| call.provider_executed).any(|call| call.id == *id)
    };
    let is_of_wire = |native: &Native| &*native.wire == WIRE;
    let is_rendered = |part: &Part| match part {
        Part::Text(_) | Part::Media(_) => message.role != Role::Tool,
        Part::ToolCall(call) => !call.provider_executed && message.role != Role::Tool,
        Part::ToolResult(result) => !by_provider(&result.call_id),
        Part::Native(native) => is_of_wire(native),
        Part::Reasoning(Reasoning { native, .. }) => native.as_ref().is_some_and(is_of_wire),
        _ => false,
    };
    let mut rendered = message.clone();
    let (kept, unrendered) = message.parts.iter().cloned().partition(is_rendered);
    rendered.parts = kept;
    (rendered, unrendered)
}
