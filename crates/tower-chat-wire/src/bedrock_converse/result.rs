//! Reads and writes tool results: the blocks of user messages that have the field `toolResult`.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A provider-executed call is a call of a tool that the provider runs itself.

use serde_json::json;
use tower_chat_core::{Part, RawJson, Role, Text, ToolResult};

use super::{
    WIRE,
    block::{self, render_part},
};
use crate::{
    object::{Object, as_text, raw, take, take_object, take_text, text},
    text_parts::{native, native_fields},
};

const RESULT: &str = "toolResult";

/// The name of the field that contains the value of a JSON block in a result.
const JSON: &str = "json";

/// Reads the result in a block. Returns `None` for the result of a provider-executed call, and for
/// a block that is not a result.
pub(super) fn parse(block: &RawJson) -> Option<ToolResult> {
    let mut fields: Object = block.parse().ok().filter(|fields: &Object| fields.len() == 1)?;
    let mut fields = take_object(&mut fields, RESULT)?;
    if text(&fields, "type").is_some_and(|kind| kind != "tool_result") {
        return None;
    }
    let content: Vec<RawJson> = take(&mut fields, "content")?.parse().ok()?;
    let mut result = ToolResult::new("", "");
    result.content = content.into_iter().map(parse_content).collect();
    result.call_id = take_text(&mut fields, "toolUseId");
    result.is_error = text(&fields, "status").is_some_and(|status| status == "error");
    if result.is_error {
        fields.remove("status");
    }
    result.native = native(WIRE, fields);
    Some(result)
}

/// Reads a block of a result. A JSON value becomes a text whose native item marks it as JSON.
fn parse_content(block: RawJson) -> Part {
    let fields: Option<Object> = block.parse().ok().filter(|fields: &Object| fields.len() == 1);
    match fields.and_then(|mut fields| fields.remove(JSON)) {
        Some(value) => {
            let mut text = Text::new(value.get());
            text.native = native(WIRE, Object::from([(JSON.to_owned(), raw(&()))]));
            Part::Text(text)
        }
        None => block::parse(block),
    }
}

/// Writes the block of a result, with `id` as its call id.
pub(super) fn render(result: &ToolResult, id: &str) -> RawJson {
    let content: Vec<RawJson> = result.content.iter().filter_map(render_content).collect();
    // The service refuses an empty content.
    let content = if content.is_empty() { vec![raw(&json!({"text": "-"}))] } else { content };
    let mut fields = native_fields(result.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("toolUseId".to_owned(), raw(id));
    fields.insert("content".to_owned(), raw(&content));
    let has_error = fields.get("status").and_then(as_text).is_some_and(|status| status == "error");
    if result.is_error {
        fields.insert("status".to_owned(), raw("error"));
    } else if has_error {
        fields.remove("status");
    }
    raw(&Object::from([(RESULT.to_owned(), raw(&fields))]))
}

fn render_content(part: &Part) -> Option<RawJson> {
    if let Part::Text(text) = part
        && native_fields(text.native.as_ref(), WIRE).is_some_and(|native| native.contains_key(JSON))
        && let Ok(value) = text.text.parse::<RawJson>()
    {
        return Some(raw(&Object::from([(JSON.to_owned(), value)])));
    }
    render_part(part, Role::Tool)
}
