//! Reads and writes tool results: messages with the role `tool`, and messages with the role
//! `function` of the API of 2023.

use tower_chat_core::ToolResult;

use super::{Audience, WIRE, content};
use crate::{
    WireError,
    fields::{Fields, raw},
};

/// The name of the field that marks a result as an error. OpenAI's API has no such field.
const ERROR: &str = "x_error";

/// The role of a result in the API of 2023, in which calls had no ids.
const LEGACY_ROLE: &str = "function";

/// Reads the result in a tool message.
pub(super) fn parse(mut fields: Fields) -> Result<ToolResult, WireError> {
    let mut result = ToolResult::new("", "");
    result.call_id = match fields.is_text("role", LEGACY_ROLE) {
        true => None,
        false => fields.take_text("tool_call_id"),
    };
    result.name = fields.take_text("name");
    result.content = content::parse(&mut fields)?;
    result.is_error = fields.get(ERROR).is_some_and(|value| value.get() == "true");
    if result.is_error {
        fields.take(ERROR);
    }
    let is_plain =
        fields.len() == 1 && fields.is_text("role", "tool") && !result.content.is_empty();
    if !is_plain {
        result.native = Some(fields.into_native(WIRE));
    }
    Ok(result)
}

/// Writes the tool message of a result.
pub(super) fn render(result: &ToolResult, audience: Audience) -> Fields {
    let native = Fields::of_native(result.native.as_ref(), WIRE);
    let mut fields = native.unwrap_or_else(|| {
        let mut fields = Fields::default();
        fields.set("content", raw(""));
        fields.set("role", raw("tool"));
        fields
    });
    let is_legacy = fields.is_text("role", LEGACY_ROLE);
    if is_legacy && audience == Audience::Model && result.call_id.is_some() {
        // The result has an id, so its call is written as an item of `tool_calls` with this id.
        fields.set("role", raw("tool"));
        if fields.is_null("content") {
            fields.set("content", raw(""));
        }
        fields.set_text("tool_call_id", result.call_id.as_deref());
    } else if !is_legacy {
        fields.set_text("tool_call_id", result.call_id.as_deref());
    }
    fields.set_text("name", result.name.as_deref());
    if let Some(content) = content::render(&result.content) {
        fields.set("content", content);
    } else if !result.content.is_empty() {
        fields.set("content", raw(""));
    }
    match audience {
        Audience::Model => drop(fields.take(ERROR)),
        Audience::Transcript if result.is_error => fields.set(ERROR, raw(&true)),
        Audience::Transcript => {}
    }
    fields
}
