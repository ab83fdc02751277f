//! Reads and writes the blocks of images and documents.

use tower_chat_core::{Media, MediaSource, RawJson};

use super::WIRE;
use crate::fields::{Fields, raw};

pub(super) const IMAGE: &str = "image";
pub(super) const DOCUMENT: &str = "document";
const PDF: &str = "application/pdf";

/// Reads the media of a block. Returns `None` if the block has another form.
pub(super) fn parse(block: &Fields) -> Option<Media> {
    let mut rest = block.clone();
    let mut source: Fields = rest.get("source")?.parse().ok()?;
    let unknown = if block.is_text("type", IMAGE) { "image/*" } else { PDF };
    let mut media = match source.text("type")?.as_str() {
        "base64" => {
            let media_type = source.take_text("media_type")?;
            Media::new(media_type, MediaSource::Base64(source.take_text("data")?))
        }
        "url" => Media::new(unknown, MediaSource::Url(source.take_text("url")?)),
        "file" => Media::new(unknown, MediaSource::File(source.take_text("file_id")?)),
        _ => return None,
    };
    rest.set("source", raw(&source));
    media.native = Some(rest.into_native(WIRE));
    if render_plain(&media).is_some_and(|plain| is_same_json(&plain, block)) {
        media.native = None;
    }
    Some(media)
}

/// Writes the block of media, if the wire has a block for this kind of media.
pub(super) fn render(media: &Media) -> Option<Fields> {
    Fields::of_native(media.native.as_ref(), WIRE)
        .and_then(|native| render_as(native, media))
        .or_else(|| render_plain(media))
}

fn render_plain(media: &Media) -> Option<Fields> {
    let kind = match media.media_type.as_str() {
        image if image.starts_with("image/") => IMAGE,
        PDF => DOCUMENT,
        _ if matches!(media.source, MediaSource::File(_)) => DOCUMENT,
        _ => return None,
    };
    let mut fields = Fields::default();
    fields.set("type", raw(kind));
    fields.set("source", source_of(media, Fields::default())?);
    Some(fields)
}

/// Writes the media into `fields`, the block from which they were read. Returns `None` if such a
/// block cannot contain the current source of the media.
fn render_as(mut fields: Fields, media: &Media) -> Option<Fields> {
    let rest: Fields = fields.get("source")?.parse().ok()?;
    let is_same_kind = match media.source {
        MediaSource::Base64(_) => rest.is_text("type", "base64"),
        MediaSource::Url(_) => rest.is_text("type", "url"),
        MediaSource::File(_) => rest.is_text("type", "file"),
        _ => false,
    };
    let rest = if is_same_kind { rest } else { Fields::default() };
    fields.set("source", source_of(media, rest)?);
    Some(fields)
}

fn source_of(media: &Media, mut source: Fields) -> Option<RawJson> {
    let (kind, field, value) = match &media.source {
        MediaSource::Base64(data) => ("base64", "data", data),
        MediaSource::Url(url) => ("url", "url", url),
        MediaSource::File(id) => ("file", "file_id", id),
        _ => return None,
    };
    source.set("type", raw(kind));
    source.set(field, raw(value));
    if kind == "base64" {
        source.set("media_type", raw(&media.media_type));
    }
    Some(raw(&source))
}

fn is_same_json(left: &Fields, right: &Fields) -> bool {
    let value = |fields: &Fields| raw(fields).parse::<serde_json::Value>().ok();
    value(left) == value(right)
}
