//! Reads and writes tool results: the `tool_result` blocks of the client's tools, and the blocks
//! with results of provider-executed calls.
//!
//! A provider-executed call is a call of a tool that the provider runs itself. A native item
//! contains a provider's own JSON fields of a message or part, which the common types do not have.
//! It belongs to one wire (a provider's JSON format), and is written only on this wire.

use tower_chat_core::{Native, Part, RawJson, ToolResult};

use super::{
    WIRE,
    content::{self, BlockContext},
};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

pub(super) const RESULT: &str = "tool_result";
const ERROR: &str = "is_error";

/// Returns whether a block of this type is the result of a provider-executed call.
pub(super) fn is_provider_executed(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// Reads a `tool_result` block.
pub(super) fn parse(mut fields: Fields) -> Result<ToolResult, WireError> {
    let mut result = ToolResult::new("", "");
    result.call_id = fields.take_text("tool_use_id");
    result.content = parse_content(&mut fields)?;
    result.is_error = fields.get(ERROR).is_some_and(|value| value.get() == "true");
    if result.is_error {
        fields.take(ERROR);
    }
    let is_plain =
        fields.len() == 1 && fields.is_text("type", RESULT) && !result.content.is_empty();
    if !is_plain {
        result.native = Some(fields.into_native(WIRE));
    }
    Ok(result)
}

/// Writes the `tool_result` block of a result with this call id. Returns `None` for the result of a
/// provider-executed call, which [`render_provider_executed`] writes.
pub(super) fn render(result: &ToolResult, id: &str) -> Option<RawJson> {
    let mut fields = Fields::of_native(result.native.as_ref(), WIRE).unwrap_or_default();
    if fields.text("type").is_some_and(|kind| is_provider_executed(&kind)) {
        return None;
    }
    fields.set("type", raw(RESULT));
    fields.set("tool_use_id", raw(id));
    Some(raw(&with_result(fields, result)))
}

/// Writes the block of the result of a provider-executed call, if it was read from this wire.
pub(super) fn render_provider_executed(result: &ToolResult) -> Option<RawJson> {
    let mut fields = Fields::of_native(result.native.as_ref(), WIRE)?;
    if !is_provider_executed(&fields.text("type")?) {
        return None;
    }
    fields.set_text("tool_use_id", result.call_id.as_deref());
    Some(raw(&with_result(fields, result)))
}

/// Removes the field `content`, and returns its parts. Does not remove an empty content, so that it
/// becomes part of the result's native item. If the content is an object, as in the results of
/// provider-executed calls, returns a native part with the object, and sets the field to `null`.
fn parse_content(fields: &mut Fields) -> Result<Vec<Part>, WireError> {
    let Some(content) = fields.get("content") else { return Ok(Vec::new()) };
    if content.get() == "null" {
        return Ok(Vec::new());
    }
    if let Some(text) = as_text(content) {
        fields.take("content");
        return Ok(vec![Part::text(text)]);
    }
    if content.get().starts_with('{') {
        let item = Native::new(WIRE, content.clone());
        fields.set("content", raw(&()));
        return Ok(vec![Part::Native(item)]);
    }
    let parts = content::parse_list(content, BlockContext::Result)?;
    if !parts.is_empty() {
        fields.take("content");
    }
    Ok(parts)
}

fn with_result(mut fields: Fields, result: &ToolResult) -> Fields {
    if result.is_error {
        fields.set(ERROR, raw(&true));
    }
    let was_object = fields.is_null("content");
    match result.content.as_slice() {
        [] => {}
        [Part::Native(native)] if was_object && &*native.wire == WIRE => {
            fields.set("content", native.item.clone());
        }
        parts => fields.set("content", content::render(parts)),
    }
    fields
}
