//! Reads and writes content parts of images, sounds and files.

use tower_chat_core::{Media, MediaSource};

use super::WIRE;
use crate::fields::{Fields, raw};

/// Reads the media of a content part, if [`render`] can write the part again.
pub(super) fn parse(part: &Fields) -> Option<Media> {
    let kind = part.text("type")?;
    let mut rest = part.clone();
    let inner = rest.take(&kind)?;
    let mut inner: Option<Fields> = match kind.as_str() {
        "image_url" => inner.parse().ok(),
        "input_audio" | "file" => Some(inner.parse().ok()?),
        _ => return None,
    };
    let mut media = match (kind.as_str(), &mut inner) {
        ("image_url", Some(inner)) => from_url(&inner.take_text("url")?, "image/*"),
        ("image_url", None) => from_url(&part.text("image_url")?, "image/*"),
        ("input_audio", Some(inner)) => parse_audio(inner)?,
        (_, Some(inner)) => parse_file(inner)?,
        (_, None) => return None,
    };
    match inner {
        Some(inner) => rest.set(&kind, raw(&inner)),
        None => rest.set(&kind, raw(&())),
    }
    media.native = Some(rest.into_native(WIRE));
    if is_same_json(&render_plain(&media), part) {
        media.native = None;
    }
    Some(media)
}

/// Writes the content part of media.
pub(super) fn render(media: &Media) -> Fields {
    Fields::of_native(media.native.as_ref(), WIRE)
        .and_then(|native| render_as(native, media))
        .unwrap_or_else(|| render_plain(media))
}

fn render_plain(media: &Media) -> Fields {
    let kind = match &media.source {
        MediaSource::Base64(_) if format_of(media).is_some() => "input_audio",
        MediaSource::Url(_) | MediaSource::Base64(_) if media.media_type.starts_with("image/") => {
            "image_url"
        }
        _ => "file",
    };
    let mut inner = Fields::default();
    if kind == "file" && matches!(media.source, MediaSource::Base64(_)) {
        inner.set("filename", raw("file"));
    }
    let mut fields = Fields::default();
    fields.set("type", raw(kind));
    fields.set(kind, raw(&inner));
    render_as(fields.clone(), media).unwrap_or(fields)
}

/// Writes the media into `fields`, the content part from which they were read. Returns `None` if
/// such a part cannot contain the current source of the media.
fn render_as(mut fields: Fields, media: &Media) -> Option<Fields> {
    let kind = fields.text("type")?;
    if fields.is_null(&kind) {
        fields.set(&kind, raw(&url_of(media)?));
        return Some(fields);
    }
    let mut inner: Fields = fields.get(&kind)?.parse().ok()?;
    match (kind.as_str(), &media.source) {
        ("image_url", _) => inner.set("url", raw(&url_of(media)?)),
        ("input_audio", MediaSource::Base64(data)) => {
            inner.set("data", raw(data));
            if inner.text("format").map(|format| type_of(&format)) != Some(media.media_type.clone())
            {
                inner.set("format", raw(format_of(media)?));
            }
        }
        ("file", MediaSource::File(id)) => inner.set("file_id", raw(id)),
        ("file", _) => inner.set("file_data", raw(&url_of(media)?)),
        _ => return None,
    }
    fields.set(&kind, raw(&inner));
    Some(fields)
}

fn parse_audio(inner: &mut Fields) -> Option<Media> {
    let format = inner.text("format")?;
    let media = Media::new(type_of(&format), MediaSource::Base64(inner.take_text("data")?));
    if format_of(&media) == Some(&format) {
        inner.take("format");
    }
    Some(media)
}

fn parse_file(inner: &mut Fields) -> Option<Media> {
    let unknown = "application/octet-stream";
    if inner.contains("file_data") && inner.contains("file_id") {
        return None;
    }
    if let Some(id) = inner.take_text("file_id") {
        return Some(Media::new(unknown, MediaSource::File(id)));
    }
    Some(from_url(&inner.take_text("file_data")?, unknown))
}

/// Reads media from a URL. From a `data:` URL (RFC 2397), reads the data and the media type.
fn from_url(url: &str, unknown: &str) -> Media {
    let inline = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .filter(|(media_type, _)| !media_type.is_empty() && !media_type.contains([';', ',']));
    match inline {
        Some((media_type, data)) => Media::new(media_type, MediaSource::Base64(data.to_owned())),
        None => Media::new(unknown, MediaSource::Url(url.to_owned())),
    }
}

fn url_of(media: &Media) -> Option<String> {
    match &media.source {
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::Base64(data) => Some(format!("data:{};base64,{data}", media.media_type)),
        _ => None,
    }
}

/// Returns OpenAI's name of a sound format, such as `mp3` for `audio/mpeg`.
fn format_of(media: &Media) -> Option<&str> {
    match media.media_type.strip_prefix("audio/")? {
        "mpeg" => Some("mp3"),
        format => Some(format),
    }
}

fn type_of(format: &str) -> String {
    format!("audio/{}", if format == "mp3" { "mpeg" } else { format })
}

fn is_same_json(left: &Fields, right: &Fields) -> bool {
    let value = |fields: &Fields| raw(fields).parse::<serde_json::Value>().ok();
    value(left) == value(right)
}
