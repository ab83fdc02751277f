//! Reads and writes content blocks.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A native part consists only of a native item.

use serde_json::json;
use tower_chat_core::{Media, MediaSource, Native, Part, RawJson, Reasoning, Text};

use super::WIRE;
use crate::{
    WireError, as_read,
    object::{Object, as_text, raw, take, take_object, take_text, text},
    text_parts::{native, native_fields},
};

/// Reads a block. A block of an unknown type becomes a native part. A block without a type is an
/// error, because a native part without a type contains the fields of the message.
pub(super) fn parse(block: Object) -> Result<Part, WireError> {
    if !block.contains_key("type") {
        let expected = "a text";
        return Err(WireError::Field { what: "a block", field: "type", expected });
    }
    let whole = raw(&block);
    let known = match text(&block, "type").as_deref() {
        Some("text") => parse_text(block),
        Some("thinking") => parse_thinking(block),
        Some("document") => parse_document(block),
        Some("image_url") => parse_image(block),
        _ => None,
    };
    Ok(known.unwrap_or_else(|| Part::Native(Native::new(WIRE, whole))))
}

fn parse_text(mut block: Object) -> Option<Part> {
    let mut text = Text::new(take_text(&mut block, "text")?);
    block.remove("type");
    text.native = native(WIRE, block);
    Some(Part::Text(text))
}

fn parse_thinking(mut block: Object) -> Option<Part> {
    let mut reasoning = Reasoning::new(take_text(&mut block, "thinking")?);
    reasoning.native = native(WIRE, block);
    Some(Part::Reasoning(reasoning))
}

/// Reads a document in a tool's result. The data of the document become the text of the part. In
/// the native item, which contains the block, an empty string replaces data that are a string, and
/// `null` replaces other data.
fn parse_document(mut block: Object) -> Option<Part> {
    let mut document = take_object(&mut block, "document")?;
    let data = take(&mut document, "data")?;
    let (data, stand_in) = match as_text(&data) {
        Some(text) => (text, raw("")),
        None => (data.get().to_owned(), raw(&())),
    };
    document.insert("data".to_owned(), stand_in);
    block.insert("document".to_owned(), raw(&document));
    let mut text = Text::new(data);
    text.native = native(WIRE, block);
    Some(Part::Text(text))
}

/// Reads an image from its URL, or its bytes from a `data:` URL. Returns `None` if the block has
/// other fields than its type and the URL, or if the media type is not an image.
fn parse_image(block: Object) -> Option<Part> {
    let mut image: Object = block.get("image_url")?.parse().ok()?;
    let url = take_text(&mut image, "url").filter(|_| image.is_empty() && block.len() == 2)?;
    let media = match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
        Some((media_type, data)) => Media::new(media_type, MediaSource::Base64(data.to_owned())),
        None => Media::new("image/*", MediaSource::Url(url)),
    };
    media.media_type.starts_with("image/").then_some(Part::Media(media))
}

/// Writes the block of a part. Returns `None` for a part for which Cohere's format has no block.
pub(super) fn render(part: &Part) -> Option<RawJson> {
    match part {
        Part::Text(text) => Some(render_text(text)),
        Part::Media(media) => render_image(media),
        Part::Native(item) => {
            let block = native_fields(Some(item), WIRE)?;
            (block.contains_key("type") && !as_read::is_mark(item, WIRE)).then(|| item.item.clone())
        }
        _ => None,
    }
}

fn render_text(text: &Text) -> RawJson {
    let mut fields = native_fields(text.native.as_ref(), WIRE).unwrap_or_default();
    if let Some(mut document) = take_object(&mut fields, "document") {
        let is_text = document.get("data").and_then(as_text).is_some();
        let json = text.text.parse().ok().filter(|_| !is_text);
        document.insert("data".to_owned(), json.unwrap_or_else(|| raw(&text.text)));
        fields.insert("document".to_owned(), raw(&document));
        return raw(&fields);
    }
    fields.insert("type".to_owned(), raw("text"));
    fields.insert("text".to_owned(), raw(&text.text));
    raw(&fields)
}

fn render_image(media: &Media) -> Option<RawJson> {
    let Media { media_type, source, .. } = media;
    if !media_type.starts_with("image/") {
        return None;
    }
    let url = match source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Base64(data) => format!("data:{media_type};base64,{data}"),
        _ => return None,
    };
    Some(raw(&json!({"type": "image_url", "image_url": {"url": url}})))
}

/// Returns the text of a text block as JSON, if the block has no other fields.
pub(super) fn plain_text(block: &RawJson) -> Option<RawJson> {
    let mut fields: Object = block.parse().ok()?;
    let is_text = text(&fields, "type").is_some_and(|kind| kind == "text");
    take(&mut fields, "text").filter(|_| is_text && fields.len() == 1)
}
