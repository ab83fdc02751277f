//! Reads and writes content blocks.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A provider-executed call is a call of a tool that the provider runs itself.

use std::collections::HashSet;

use tower_chat_core::{Media, Native, Part, RawJson, Text};

use super::{WIRE, call, media, result, thinking};
use crate::{
    WireError,
    fields::{Fields, raw},
};

/// The position of a block. The same type of block has different meanings at different positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockContext {
    System,
    User,
    Assistant,
    Result,
}

/// Reads a list of blocks.
pub(super) fn parse_list(list: &RawJson, context: BlockContext) -> Result<Vec<Part>, WireError> {
    let items: Vec<RawJson> = list.parse().map_err(|source| WireError::Json {
        what: "the content of a message",
        expected: "a text or a list",
        source,
    })?;
    let is_alone = items.len() == 1;
    let mut parts = Vec::with_capacity(items.len());
    let mut provider_call_ids = HashSet::new();
    for item in items {
        let part = parse_block(item, is_alone, context, &provider_call_ids)?;
        let call = part.as_tool_call().filter(|call| call.provider_executed);
        provider_call_ids.extend(call.and_then(|call| call.id.clone()));
        parts.push(part);
    }
    Ok(parts)
}

/// Writes the content of a result: a string, or a list of blocks.
pub(super) fn render(parts: &[Part]) -> RawJson {
    if let [Part::Text(text)] = parts
        && is_bare(text)
    {
        return raw(&text.text);
    }
    let is_rendered =
        |part: &&Part| !matches!(part, Part::Text(text) if is_bare(text) && is_blank(text));
    raw(&parts.iter().filter(is_rendered).filter_map(render_part).collect::<Vec<_>>())
}

/// Writes the block of a text.
pub(super) fn render_text(text: &Text) -> RawJson {
    let mut fields = Fields::of_native(text.native.as_ref(), WIRE).unwrap_or_default();
    fields.set("type", raw("text"));
    fields.set("text", raw(&text.text));
    raw(&fields)
}

/// Writes the block of media. Returns `None` if the wire has no block for this kind of media.
pub(super) fn render_media(media: &Media) -> Option<RawJson> {
    media::render(media).map(|fields| raw(&fields))
}

/// Returns whether the text can be written as a string instead of a list with one block.
pub(super) fn is_bare(text: &Text) -> bool {
    Fields::of_native(text.native.as_ref(), WIRE).is_none()
}

/// Returns whether the text is blank. The service refuses blank texts.
pub(super) fn is_blank(text: &Text) -> bool {
    text.text.trim().is_empty()
}

fn parse_block(
    item: RawJson,
    is_alone: bool,
    context: BlockContext,
    provider_call_ids: &HashSet<String>,
) -> Result<Part, WireError> {
    let fields = Fields::parse(item.get(), "a content block")?;
    let kind = fields.text("type").ok_or(WireError::Field {
        what: "a content block",
        field: "type",
        expected: "a text",
    })?;
    let known = match (context, kind.as_str()) {
        (_, "text") => parse_text(&fields, is_alone, context).map(Part::Text),
        (BlockContext::User | BlockContext::Result, media::IMAGE | media::DOCUMENT) => {
            media::parse(&fields).map(Part::Media)
        }
        (BlockContext::Assistant, call::CALL) => return call::parse(fields).map(Part::ToolCall),
        (BlockContext::User, result::RESULT) => return result::parse(fields).map(Part::ToolResult),
        (BlockContext::Assistant, thinking::THINKING | thinking::REDACTED) => {
            thinking::parse(&fields).map(Part::Reasoning)
        }
        (BlockContext::Assistant, kind) if call::is_provider_executed(kind) => {
            call::parse_provider_executed(&fields).map(Part::ToolCall)
        }
        (BlockContext::Assistant, kind)
            if result::is_provider_executed(kind) && has_call(provider_call_ids, &fields) =>
        {
            result::parse(fields.clone()).ok().map(Part::ToolResult)
        }
        _ => None,
    };
    match known {
        Some(part) => Ok(part),
        None if fields.contains("role") => Err(WireError::Field {
            what: "a content block with a role",
            field: "type",
            expected: "a known one",
        }),
        None => Ok(Part::Native(Native::new(WIRE, item))),
    }
}

/// Reads a text block. Returns `None` for a blank text in the system instructions or in a result:
/// the caller then reads the block as a native part. The service has accepted the block at this
/// position, and the writer writes native parts again, but omits blank [`Text`]s.
fn parse_text(block: &Fields, is_alone: bool, context: BlockContext) -> Option<Text> {
    let mut fields = block.clone();
    let mut text = Text::new(fields.take_text("text")?);
    if is_blank(&text) && matches!(context, BlockContext::System | BlockContext::Result) {
        return None;
    }
    if is_alone || fields.len() > 1 {
        text.native = Some(fields.into_native(WIRE));
    }
    Some(text)
}

/// Returns whether the result answers one of the provider-executed calls with these ids.
fn has_call(provider_call_ids: &HashSet<String>, result: &Fields) -> bool {
    result.text("tool_use_id").is_some_and(|id| provider_call_ids.contains(&id))
}

fn render_part(part: &Part) -> Option<RawJson> {
    match part {
        Part::Text(text) => Some(render_text(text)),
        Part::Media(media) => render_media(media),
        Part::Native(native) if &*native.wire == WIRE => Some(native.item.clone()),
        _ => None,
    }
}
