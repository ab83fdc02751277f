//! Content blocks to and from the wire. A block has one field, which says what it is.

use serde_json::json;
use tower_chat_core::{
    Media, MediaSource, Message, Native, Part, RawJson, Reasoning, Role, ToolCall, ToolResult,
};

use super::WIRE;
use crate::{
    AnswerError,
    object::{Object, raw, take, take_object, take_text, text},
    text_parts::{fields_of, native, object_of},
};

const REASONING: &str = "reasoningContent";
const REASONING_TEXT: &str = "reasoningText";

/// The assistant's message of an answer. Blocks that are not known are native parts.
pub(super) fn parse(mut fields: Object) -> Result<Message, AnswerError> {
    let blocks = take(&mut fields, "content");
    let blocks = blocks.map_or(Ok(Vec::new()), |blocks| {
        let list = blocks.parse::<Vec<RawJson>>();
        list.map_err(|_| AnswerError::malformed("its content is no list", blocks.get()))
    })?;
    fields.remove("role");
    fields.retain(|_, value| value.get() != "null");
    let shell = native(WIRE, fields).map(Part::Native);
    let parts = shell.into_iter().chain(blocks.into_iter().map(parse_block)).collect();
    Ok(Message::new(Role::Assistant, parts))
}

fn parse_block(block: RawJson) -> Part {
    let known = block.parse().ok().and_then(parse_known);
    known.unwrap_or_else(|| Part::Native(Native::new(WIRE, block)))
}

fn parse_known(mut fields: Object) -> Option<Part> {
    if fields.len() != 1 {
        return None;
    }
    if let Some(text) = take_text(&mut fields, "text") {
        return Some(Part::text(text));
    }
    if let Some(mut call) = take_object(&mut fields, "toolUse") {
        // Of another kind are calls of tools that the service runs itself.
        if text(&call, "type").is_some_and(|kind| kind != "tool_use") {
            return None;
        }
        let name = take_text(&mut call, "name")?;
        let input = take(&mut call, "input").map(|input| input.get().to_owned());
        let mut parsed = ToolCall::without_id(name, input.unwrap_or_default());
        parsed.id = take_text(&mut call, "toolUseId");
        parsed.native = native(WIRE, call);
        return Some(parsed.into());
    }
    let mut content = take_object(&mut fields, REASONING)?;
    let text = content.get(REASONING_TEXT).and_then(|text| text.parse::<Object>().ok());
    let mut reasoning = Reasoning::new("");
    if let Some(mut inner) = text {
        reasoning.text = take_text(&mut inner, "text")?;
        content.insert(REASONING_TEXT.to_owned(), raw(&inner));
    }
    reasoning.native = native(WIRE, content);
    Some(reasoning.into())
}

/// The block of a part of the assistant's, or of anybody's that is neither call nor result. `None`
/// of blank texts, which the service refuses, and of what it cannot say.
pub(super) fn render_part(part: &Part, role: Role) -> Option<RawJson> {
    match part {
        Part::Text(text) if text.text.trim().is_empty() => None,
        Part::Text(text) => Some(raw(&json!({"text": text.text}))),
        Part::Reasoning(reasoning) if role == Role::Assistant => render_reasoning(reasoning),
        Part::Media(media) if role != Role::Assistant => render_media(media),
        Part::Native(native) => {
            let fields = fields_of(Some(native), WIRE)?;
            (fields.len() == 1).then(|| native.item.clone())
        }
        _ => None,
    }
}

fn render_reasoning(reasoning: &Reasoning) -> Option<RawJson> {
    let mut content = fields_of(reasoning.native.as_ref(), WIRE)?;
    if let Some(mut inner) = take_object(&mut content, REASONING_TEXT) {
        inner.insert("text".to_owned(), raw(&reasoning.text));
        content.insert(REASONING_TEXT.to_owned(), raw(&inner));
    }
    Some(raw(&Object::from([(REASONING.to_owned(), raw(&content))])))
}

pub(super) fn render_call(call: &ToolCall) -> RawJson {
    let mut fields = fields_of(call.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("name".to_owned(), raw(&call.name));
    fields.insert("input".to_owned(), object_of(&call.arguments));
    fields.insert("toolUseId".to_owned(), raw(&acceptable(call.id.as_deref())));
    raw(&Object::from([("toolUse".to_owned(), raw(&fields))]))
}

pub(super) fn render_result(result: &ToolResult) -> RawJson {
    let content: Vec<RawJson> =
        result.content.iter().filter_map(|part| render_part(part, Role::Tool)).collect();
    // It must not be empty.
    let content = if content.is_empty() { vec![raw(&json!({"text": "-"}))] } else { content };
    let mut fields = Object::from([
        ("toolUseId".to_owned(), raw(&acceptable(result.call_id.as_deref()))),
        ("content".to_owned(), raw(&content)),
    ]);
    if result.is_error {
        fields.insert("status".to_owned(), raw("error"));
    }
    raw(&Object::from([("toolResult".to_owned(), raw(&fields))]))
}

/// The id, of letters, digits, `_` and `-`, as the service wants it.
fn acceptable(id: Option<&str>) -> String {
    let is_acceptable = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let id = id.filter(|id| !id.is_empty()).unwrap_or("call");
    id.chars().map(|it| if is_acceptable(it) { it } else { '_' }).collect()
}

fn render_media(media: &Media) -> Option<RawJson> {
    let MediaSource::Base64(data) = &media.source else { return None };
    let source = json!({"bytes": data});
    let block = match media.media_type.split_once('/')? {
        ("image", format) => json!({"image": {"format": format, "source": source}}),
        ("application", "pdf") => {
            json!({"document": {"format": "pdf", "name": "document", "source": source}})
        }
        _ => return None,
    };
    Some(raw(&block))
}
