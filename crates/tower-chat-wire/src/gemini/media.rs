//! Reads and writes the parts of images, sounds and files.

use tower_chat_core::{Media, MediaSource};

use super::{
    WIRE,
    part::{FILE, INLINE, Name, spelling},
};
use crate::fields::{Fields, raw};

const TYPE: Name = ["mimeType", "mime_type"];
const ADDRESS: Name = ["fileUri", "file_uri"];
const UNKNOWN: &str = "application/octet-stream";

/// The beginning of the URLs of files at Gemini, which no other provider can read.
const UPLOADED_FILE_PREFIX: &str = "https://generativelanguage.googleapis.com/";

/// Reads the media of a part. Returns `None` if the part is not media, or has a form that
/// [`render`] could not write again.
pub(super) fn parse(part: &Fields) -> Option<Media> {
    let mut rest = part.clone();
    let inline = spelling(part, INLINE);
    let key = inline.or_else(|| spelling(part, FILE))?;
    let mut inner: Fields = rest.take(key)?.parse().ok()?;
    if !is_unambiguous(&inner, TYPE) || !is_unambiguous(&inner, ADDRESS) {
        return None;
    }
    let source = match inline {
        Some(_) => MediaSource::Base64(inner.take_text("data")?),
        None => match take_in_either_spelling(&mut inner, ADDRESS)? {
            address if address.starts_with(UPLOADED_FILE_PREFIX) => MediaSource::File(address),
            address => MediaSource::Url(address),
        },
    };
    let media_type = take_in_either_spelling(&mut inner, TYPE);
    rest.set(key, raw(&inner));
    let mut media = Media::new(media_type.unwrap_or_else(|| UNKNOWN.to_owned()), source);
    if !render(&media).is_some_and(|plain| is_same_json(&plain, part)) {
        media.native = Some(rest.into_native(WIRE));
    }
    Some(media)
}

/// Writes the part of media. Returns `None` for a file that another provider stores.
pub(super) fn render(media: &Media) -> Option<Fields> {
    Fields::of_native(media.native.as_ref(), WIRE)
        .and_then(|native| render_as(native, media))
        .or_else(|| render_plain(media))
}

fn render_plain(media: &Media) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut inner = Fields::default();
    match &media.source {
        MediaSource::Base64(data) => {
            inner.set("data", raw(data));
            inner.set(TYPE[0], raw(&media.media_type));
            fields.set(INLINE[0], raw(&inner));
        }
        MediaSource::Url(address) => fields.set(FILE[0], raw(&file(address, media))),
        MediaSource::File(address) if address.contains("://") => {
            fields.set(FILE[0], raw(&file(address, media)));
        }
        _ => return None,
    }
    Some(fields)
}

/// Writes the media into `fields`, the part from which they were read. Returns `None` if such a
/// part cannot contain the current source of the media.
fn render_as(mut fields: Fields, media: &Media) -> Option<Fields> {
    let name = if matches!(media.source, MediaSource::Base64(_)) { INLINE } else { FILE };
    let key = spelling(&fields, name)?;
    let mut inner: Fields = fields.get(key)?.parse().ok()?;
    match &media.source {
        MediaSource::Base64(data) => inner.set("data", raw(data)),
        MediaSource::Url(address) | MediaSource::File(address) => {
            inner.set(present_spelling(&inner, ADDRESS).unwrap_or(ADDRESS[0]), raw(address));
        }
        _ => return None,
    }
    let type_key = present_spelling(&inner, TYPE);
    if type_key.is_some_and(|key| inner.is_null(key)) || media.media_type != UNKNOWN {
        inner.set(type_key.unwrap_or(TYPE[0]), raw(&media.media_type));
    }
    fields.set(key, raw(&inner));
    Some(fields)
}

fn file(address: &str, media: &Media) -> Fields {
    let mut inner = Fields::default();
    inner.set(ADDRESS[0], raw(address));
    if media.media_type != UNKNOWN && !media.media_type.ends_with("/*") {
        inner.set(TYPE[0], raw(&media.media_type));
    }
    inner
}

/// Returns whether the field is missing, or is a string that is present in only one spelling.
fn is_unambiguous(inner: &Fields, name: Name) -> bool {
    let present: Vec<&str> = name.into_iter().filter(|name| inner.contains(name)).collect();
    match present.as_slice() {
        [] => true,
        [key] => inner.text(key).is_some(),
        _ => false,
    }
}

/// Returns the string in a field that has either spelling, and sets the field to `null`.
fn take_in_either_spelling(inner: &mut Fields, name: Name) -> Option<String> {
    let key = spelling(inner, name)?;
    let text = inner.take_text(key)?;
    inner.set(key, raw(&()));
    Some(text)
}

fn present_spelling(inner: &Fields, name: Name) -> Option<&'static str> {
    name.into_iter().find(|name| inner.contains(name))
}

fn is_same_json(left: &Fields, right: &Fields) -> bool {
    let value = |fields: &Fields| raw(fields).parse::<serde_json::Value>().ok();
    value(left) == value(right)
}
