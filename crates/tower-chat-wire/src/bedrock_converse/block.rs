//! Reads and writes content blocks. A block has one field, whose name is the type of the block.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A native part consists only of a native item.

use serde_json::json;
use tower_chat_core::{Media, MediaSource, Native, Part, RawJson, Reasoning, Role, ToolCall};

use super::{WIRE, turns::is_envelope};
use crate::{
    as_read,
    object::{Object, raw, take, take_object, take_text, text},
    text_parts::{arguments_object, native, native_fields},
};

const REASONING: &str = "reasoningContent";
const REASONING_TEXT: &str = "reasoningText";

/// Reads a block. An unknown block becomes a native part.
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
    // A block with fields that `Media` does not have, such as a document's name, becomes a native
    // part.
    let written = render_media(&media)?;
    as_read::is_same_json(&written, &raw(&fields)).then_some(Part::Media(media))
}

fn parse_call(mut call: Object) -> Option<Part> {
    // A call of another type is a call of a tool that the service runs.
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

/// Writes the block of a part that is neither a call nor a result. Returns `None` if the wire has
/// no block for the part, and for parts that the service refuses: blank texts, reasoning in user
/// messages, and media in assistant messages.
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
    let mut content = native_fields(reasoning.native.as_ref(), WIRE)?;
    if let Some(mut inner) = take_object(&mut content, REASONING_TEXT) {
        inner.insert("text".to_owned(), raw(&reasoning.text));
        content.insert(REASONING_TEXT.to_owned(), raw(&inner));
    }
    Some(raw(&Object::from([(REASONING.to_owned(), raw(&content))])))
}

/// Writes the block of a call with this call id.
pub(super) fn render_call(call: &ToolCall, id: &str) -> RawJson {
    let mut fields = native_fields(call.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("name".to_owned(), raw(&call.name));
    fields.insert("input".to_owned(), arguments_object(&call.arguments));
    fields.insert("toolUseId".to_owned(), raw(id));
    raw(&Object::from([("toolUse".to_owned(), raw(&fields))]))
}

/// The media types of documents, and Bedrock's names for these formats
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
