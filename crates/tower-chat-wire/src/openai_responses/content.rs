//! Reads and writes the content of items: a string, or a list of content parts.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use tower_chat_core::{Part, RawJson, Text};

use super::{WIRE, media, native::NativeForm};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

/// The type of a content part with a text that the model reads.
pub(super) const INPUT: &str = "input_text";
/// The type of a content part with a text that the model wrote.
pub(super) const OUTPUT: &str = "output_text";

const TEXTS: [&str; 2] = [INPUT, OUTPUT];

/// Reads the content of an item. `text_type` is the usual type of texts in this content. A text of
/// another type gets a native item, which contains its type.
pub(super) fn parse(content: &RawJson, text_type: &str) -> Result<Vec<Part>, WireError> {
    if let Some(text) = as_text(content) {
        return Ok(vec![Part::text(text)]);
    }
    let items: Vec<RawJson> = content.parse().map_err(|source| WireError::Json {
        what: "the content of an item",
        expected: "a text or a list",
        source,
    })?;
    let is_alone = items.len() == 1;
    Ok(items.into_iter().map(|item| parse_part(item, text_type, is_alone)).collect())
}

/// Writes the content of an item. Returns `None` if no part is written into the content.
pub(super) fn render<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    text_type: &str,
) -> Option<RawJson> {
    let content: Vec<&Part> = parts.into_iter().filter(|part| is_content(part)).collect();
    match content.as_slice() {
        [] => None,
        [Part::Text(text)] if Fields::of_native(text.native.as_ref(), WIRE).is_none() => {
            Some(raw(&text.text))
        }
        parts => {
            let parts = parts.iter().flat_map(|part| render_part(part, text_type));
            Some(raw(&parts.collect::<Vec<_>>()))
        }
    }
}

/// Returns whether the part is written into the content of an item.
pub(super) fn is_content(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Media(_) => true,
        Part::Native(native) => {
            matches!(NativeForm::of_native(native), Some(NativeForm::Content(_)))
        }
        _ => false,
    }
}

fn parse_part(item: RawJson, text_type: &str, is_alone: bool) -> Part {
    let Ok(mut fields) = Fields::parse(item.get(), "a content part") else {
        return Part::Native(NativeForm::content(item));
    };
    if let Some(kind) = fields.text("type").filter(|kind| TEXTS.contains(&kind.as_str()))
        && let Some(text) = fields.take_text("text")
    {
        let mut text = Text::new(text);
        if is_alone || fields.len() > 1 || kind != text_type {
            text.native = Some(fields.into_native(WIRE));
        }
        return text.into();
    }
    match media::parse(&fields) {
        Some(media) => media.into(),
        None => Part::Native(NativeForm::content(item)),
    }
}

fn render_part(part: &Part, text_type: &str) -> Vec<RawJson> {
    match part {
        Part::Text(text) => {
            let mut fields = Fields::of_native(text.native.as_ref(), WIRE).unwrap_or_default();
            if !fields.contains("type") {
                fields.set("type", raw(text_type));
            }
            fields.set("text", raw(&text.text));
            vec![raw(&fields)]
        }
        Part::Media(media) => vec![raw(&media::render(media))],
        Part::Native(native) => match NativeForm::of_native(native) {
            Some(NativeForm::Content(parts)) => parts,
            Some(NativeForm::Message(_) | NativeForm::Item) | None => Vec::new(),
        },
        _ => Vec::new(),
    }
}
