//! Reads and writes the field `content`: a string, or a list of content parts.

use tower_chat_core::{Native, Part, RawJson, Text};

use super::{WIRE, media, message::is_envelope};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

/// Removes and reads the content of a message. A content that is `null` or an empty list remains.
pub(super) fn parse(fields: &mut Fields) -> Result<Vec<Part>, WireError> {
    let Some(content) = fields.get("content") else { return Ok(Vec::new()) };
    if content.get() == "null" {
        return Ok(Vec::new());
    }
    let parts = if let Some(text) = as_text(content) {
        vec![Part::text(text)]
    } else {
        let items: Vec<RawJson> = content.parse().map_err(|source| WireError::Json {
            what: "the content of a message",
            expected: "a text or a list",
            source,
        })?;
        let is_alone = items.len() == 1;
        items.into_iter().map(|item| parse_part(item, is_alone)).collect::<Result<_, _>>()?
    };
    if !parts.is_empty() {
        fields.take("content");
    }
    Ok(parts)
}

/// Writes the parts that belong to the content of a message, if any.
pub(super) fn render(parts: &[Part]) -> Option<RawJson> {
    let content: Vec<&Part> = parts.iter().filter(|part| is_content(part)).collect();
    match content.as_slice() {
        [] => None,
        [Part::Text(text)] if Fields::of_native(text.native.as_ref(), WIRE).is_none() => {
            Some(raw(&text.text))
        }
        parts => Some(raw(&parts.iter().filter_map(|part| render_part(part)).collect::<Vec<_>>())),
    }
}

/// Returns whether the part belongs to the content of a message.
pub(super) fn is_content(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Media(_) => true,
        Part::Native(native) => &*native.wire == WIRE && !is_envelope(native),
        _ => false,
    }
}

fn parse_part(item: RawJson, is_alone: bool) -> Result<Part, WireError> {
    let Ok(mut fields) = Fields::parse(item.get(), "a content part") else {
        return Ok(Part::Native(Native::new(WIRE, item)));
    };
    if fields.is_text("type", "text")
        && let Some(text) = fields.take_text("text")
    {
        let mut text = Text::new(text);
        if is_alone || fields.len() > 1 {
            text.native = Some(fields.into_native(WIRE));
        }
        return Ok(text.into());
    }
    if let Some(media) = media::parse(&fields) {
        return Ok(media.into());
    }
    if fields.contains("role") {
        return Err(WireError::Field {
            what: "a content part with a role",
            field: "type",
            expected: "a known one",
        });
    }
    Ok(Part::Native(Native::new(WIRE, item)))
}

fn render_part(part: &Part) -> Option<RawJson> {
    match part {
        Part::Text(text) => {
            let mut fields = Fields::of_native(text.native.as_ref(), WIRE).unwrap_or_default();
            fields.set("type", raw("text"));
            fields.set("text", raw(&text.text));
            Some(raw(&fields))
        }
        Part::Media(media) => Some(raw(&media::render(media))),
        Part::Native(native) => Some(native.item.clone()),
        _ => None,
    }
}
