//! Results of tools: blocks of the user's with the field `toolResult`.

use serde_json::json;
use tower_chat_core::{Part, RawJson, Role, Text, ToolResult};

use super::{
    WIRE,
    block::{self, render_part},
};
use crate::{
    object::{Object, as_text, raw, take, take_object, take_text, text},
    text_parts::{fields_of, native},
};

const RESULT: &str = "toolResult";

/// The field of a block that is a JSON value.
const JSON: &str = "json";

/// The result that a block is; `None` of any other block, and of one that the service ran itself.
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

/// A block of a result. A JSON value is a text, whose native item tells that it is one.
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

/// The block of a result of the call with this id. Calls, results and reasoning in it are left out: the wire has none there.
pub(super) fn render(result: &ToolResult, id: &str) -> RawJson {
    let content: Vec<RawJson> = result.content.iter().filter_map(render_content).collect();
    // It must not be empty.
    let content = if content.is_empty() { vec![raw(&json!({"text": "-"}))] } else { content };
    let mut fields = fields_of(result.native.as_ref(), WIRE).unwrap_or_default();
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
        && fields_of(text.native.as_ref(), WIRE).is_some_and(|native| native.contains_key(JSON))
        && let Ok(value) = text.text.parse::<RawJson>()
    {
        return Some(raw(&Object::from([(JSON.to_owned(), value)])));
    }
    render_part(part, Role::Tool)
}
