//! Reads and writes content parts of images, sounds and files.

use tower_chat_core::{Media, MediaSource};

use super::WIRE;
use crate::fields::{Fields, raw};

const IMAGE: &str = "input_image";
const FILE: &str = "input_file";
const AUDIO: &str = "input_audio";

/// The fields of which a content part of an image or a file has exactly one.
const FIELDS: [&str; 4] = ["image_url", "file_data", "file_url", "file_id"];

/// Reads the media of a content part, if [`render`] can write the part again.
pub(super) fn parse(part: &Fields) -> Option<Media> {
    let kind = part.text("type")?;
    let mut rest = part.clone();
    let mut media = match kind.as_str() {
        IMAGE | FILE => {
            let mut fields = FIELDS.into_iter().filter(|field| rest.text(field).is_some());
            let (field, None) = (fields.next()?, fields.next()) else { return None };
            let found = rest.take_text(field)?;
            let unknown = if kind == IMAGE { "image/*" } else { "application/octet-stream" };
            let media = match field {
                "file_id" => Media::new(unknown, MediaSource::File(found)),
                _ => from_url(&found, unknown),
            };
            if field_of(&kind, &media) != field {
                return None;
            }
            media
        }
        AUDIO => {
            let mut inner: Fields = rest.take(AUDIO)?.parse().ok()?;
            let format = inner.text("format")?;
            let data = MediaSource::Base64(inner.take_text("data")?);
            rest.set(AUDIO, raw(&inner));
            Media::new(type_of(&format), data)
        }
        _ => return None,
    };
    if is_same_json(&render_plain(&media), part) {
        return Some(media);
    }
    media.native = Some(rest.into_native(WIRE));
    Some(media)
}

/// Writes the content part of media.
pub(super) fn render(media: &Media) -> Fields {
    Fields::of_native(media.native.as_ref(), WIRE)
        .and_then(|native| render_as(native, media))
        .unwrap_or_else(|| render_plain(media))
}

/// Returns the URL of media, or a `data:` URL. Files that a service stores have no URL.
pub(super) fn url_of(media: &Media) -> Option<String> {
    match &media.source {
        MediaSource::Url(url) => Some(url.clone()),
        MediaSource::Base64(data) => Some(format!("data:{};base64,{data}", media.media_type)),
        _ => None,
    }
}

fn render_plain(media: &Media) -> Fields {
    let is_here = matches!(media.source, MediaSource::Base64(_));
    let kind = match format_of(media) {
        Some(_) if is_here => AUDIO,
        _ if media.media_type.starts_with("image/") => IMAGE,
        _ => FILE,
    };
    let mut fields = Fields::default();
    fields.set("type", raw(kind));
    if kind == AUDIO {
        fields.set(AUDIO, raw(&Fields::default()));
    } else if kind == FILE && is_here {
        fields.set("filename", raw("file"));
    }
    render_as(fields.clone(), media).unwrap_or(fields)
}

/// Writes the media into `fields`, the content part from which they were read. Returns `None` if
/// such a part cannot contain the current source of the media.
fn render_as(mut fields: Fields, media: &Media) -> Option<Fields> {
    let kind = fields.text("type")?;
    match (kind.as_str(), &media.source) {
        (IMAGE | FILE, MediaSource::File(id)) => fields.set("file_id", raw(id)),
        (IMAGE | FILE, _) => fields.set(field_of(&kind, media), raw(&url_of(media)?)),
        (AUDIO, MediaSource::Base64(data)) => {
            let mut inner: Fields = fields.get(AUDIO)?.parse().ok()?;
            inner.set("data", raw(data));
            if inner.text("format").map(|format| type_of(&format)) != Some(media.media_type.clone())
            {
                inner.set("format", raw(format_of(media)?));
            }
            fields.set(AUDIO, raw(&inner));
        }
        _ => return None,
    }
    Some(fields)
}

/// Returns the field of a content part of this type that contains the source of the media.
fn field_of(kind: &str, media: &Media) -> &'static str {
    match &media.source {
        MediaSource::File(_) => "file_id",
        _ if kind == IMAGE => "image_url",
        MediaSource::Url(_) => "file_url",
        _ => "file_data",
    }
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

/// Returns OpenAI's name of a sound format that it supports, such as `mp3` for `audio/mpeg`.
fn format_of(media: &Media) -> Option<&'static str> {
    match media.media_type.as_str() {
        "audio/mpeg" => Some("mp3"),
        "audio/wav" => Some("wav"),
        _ => None,
    }
}

fn type_of(format: &str) -> String {
    format!("audio/{}", if format == "mp3" { "mpeg" } else { format })
}

fn is_same_json(left: &Fields, right: &Fields) -> bool {
    let value = |fields: &Fields| raw(fields).parse::<serde_json::Value>().ok();
    value(left) == value(right)
}
