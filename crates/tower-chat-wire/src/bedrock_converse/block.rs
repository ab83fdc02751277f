//! Content blocks to and from the wire. A block has one field, which names what it is.

use serde_json::json;
use tower_chat_core::{Media, MediaSource, Native, Part, RawJson, Reasoning, Role, ToolCall};

use super::{WIRE, turns::is_envelope};
use crate::{
    as_read,
    object::{Object, raw, take, take_object, take_text, text},
    text_parts::{fields_of, native, object_of},
};

const REASONING: &str = "reasoningContent";
const REASONING_TEXT: &str = "reasoningText";

/// The part that a block is. One that is not known is a native part, whole.
pub(super) fn parse(block: RawJson) -> Part {
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
    if let Some(call) = take_object(&mut fields, "toolUse") {
        return parse_call(call);
    }
    if let Some(reasoning) = take_object(&mut fields, REASONING) {
        return parse_reasoning(reasoning);
    }
    let media = parse_media(&fields)?;
    // One with more to it, such as a document's name, stays as it is.
    let written = render_media(&media)?;
    as_read::same(&written, &raw(&fields)).then_some(Part::Media(media))
}

fn parse_call(mut call: Object) -> Option<Part> {
    // Of another kind are calls of tools that the service runs itself.
    if text(&call, "type").is_some_and(|kind| kind != "tool_use") {
        return None;
    }
    let name = take_text(&mut call, "name")?;
    let input = take(&mut call, "input").map(|input| input.get().to_owned());
    let mut parsed = ToolCall::without_id(name, input.unwrap_or_default());
    parsed.id = take_text(&mut call, "toolUseId");
    parsed.native = native(WIRE, call);
    Some(parsed.into())
}

fn parse_reasoning(mut content: Object) -> Option<Part> {
    let text = content.get(REASONING_TEXT).and_then(|text| text.parse::<Object>().ok());
    let mut reasoning = Reasoning::new("");
    if let Some(mut inner) = text {
        reasoning.text = take_text(&mut inner, "text")?;
        content.insert(REASONING_TEXT.to_owned(), raw(&inner));
    }
    reasoning.native = native(WIRE, content);
    Some(reasoning.into())
}

fn parse_media(fields: &Object) -> Option<Media> {
    let (kind, value) = fields.first_key_value()?;
    let mut fields: Object = value.parse().ok()?;
    let format = take_text(&mut fields, "format")?;
    let data = take_text(&mut take_object(&mut fields, "source")?, "bytes")?;
    let media_type = match (kind.as_str(), format.as_str()) {
        ("image", format) => format!("image/{format}"),
        ("document", format) => {
            DOCUMENTS.into_iter().find(|(_, known)| *known == format)?.0.to_owned()
        }
        _ => return None,
    };
    Some(Media::new(media_type, MediaSource::Base64(data)))
}

/// The block of a part of the assistant's, or of anybody's that is neither call nor result. `None`
/// of blank texts, which the service refuses, and of what the wire has no form for.
pub(super) fn render_part(part: &Part, role: Role) -> Option<RawJson> {
    match part {
        Part::Text(text) if text.text.trim().is_empty() => None,
        Part::Text(text) => Some(raw(&json!({"text": text.text}))),
        Part::Reasoning(reasoning) if role == Role::Assistant => render_reasoning(reasoning),
        Part::Media(media) if role != Role::Assistant => render_media(media),
        Part::Native(native) => {
            let is_of_wire = &*native.wire == WIRE && !as_read::is_mark(native, WIRE);
            (is_of_wire && !is_envelope(native)).then(|| native.item.clone())
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

/// The block of a call, with the id by which its result names it.
pub(super) fn render_call(call: &ToolCall, id: &str) -> RawJson {
    let mut fields = fields_of(call.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("name".to_owned(), raw(&call.name));
    fields.insert("input".to_owned(), object_of(&call.arguments));
    fields.insert("toolUseId".to_owned(), raw(id));
    raw(&Object::from([("toolUse".to_owned(), raw(&fields))]))
}

/// The media types of the formats that a document can have
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html>).
const DOCUMENTS: [(&str, &str); 9] = [
    ("application/pdf", "pdf"),
    ("text/csv", "csv"),
    ("application/msword", "doc"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("text/html", "html"),
    ("text/plain", "txt"),
    ("text/markdown", "md"),
];

fn render_media(media: &Media) -> Option<RawJson> {
    let MediaSource::Base64(data) = &media.source else { return None };
    let source = json!({"bytes": data});
    let block = match media.media_type.split_once('/')? {
        ("image", format) => json!({"image": {"format": format, "source": source}}),
        _ => {
            let (_, format) = DOCUMENTS.into_iter().find(|(kind, _)| *kind == media.media_type)?;
            json!({"document": {"format": format, "name": "document", "source": source}})
        }
    };
    Some(raw(&block))
}
