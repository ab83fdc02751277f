//! Reads and writes the parts of a Gemini `Content`, which is one message.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A native part consists only of a native item.

use tower_chat_core::{Native, Part, RawJson, Reasoning, Text};

use super::{WIRE, call, content::is_envelope, media, result};
use crate::{
    WireError,
    fields::{Fields, raw},
};

/// The two spellings of a field's name.
pub(super) type Name = [&'static str; 2];

pub(super) const TEXT: Name = ["text", "text"];
pub(super) const CALL: Name = ["functionCall", "function_call"];
pub(super) const RESULT: Name = ["functionResponse", "function_response"];
pub(super) const INLINE: Name = ["inlineData", "inline_data"];
pub(super) const FILE: Name = ["fileData", "file_data"];

/// The fields of which a part of a known kind has exactly one.
const KINDS: [Name; 7] = [
    TEXT,
    CALL,
    RESULT,
    INLINE,
    FILE,
    ["executableCode", "executable_code"],
    ["codeExecutionResult", "code_execution_result"],
];

/// The role of the `Content` that contains a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Model,
}

/// Returns the spelling in which the field is present and not `null`.
pub(super) fn spelling(fields: &Fields, name: Name) -> Option<&'static str> {
    name.into_iter().find(|name| fields.contains(name) && !fields.is_null(name))
}

/// Reads a part. A part that is malformed, of an unknown kind, or of a kind that is not allowed for
/// the speaker becomes a native part. Returns an error if the part has the form of a `Content`.
pub(super) fn parse(item: &RawJson, speaker: Speaker) -> Result<Part, WireError> {
    let native = Native::new(WIRE, item.clone());
    let Ok(fields) = Fields::parse(item.get(), "a part") else { return Ok(native.into()) };
    if let Some(part) = parse_known(&fields, speaker) {
        return Ok(part);
    }
    if is_envelope(&native) {
        return Err(WireError::Field {
            what: "a part",
            field: "parts",
            expected: "allowed there: only a content has the field parts",
        });
    }
    Ok(native.into())
}

/// Writes a part that is neither a call nor a result.
pub(super) fn render(part: &Part) -> Option<RawJson> {
    let (mut fields, text) = match part {
        Part::Text(text) => {
            (Fields::of_native(text.native.as_ref(), WIRE).unwrap_or_default(), &text.text)
        }
        Part::Reasoning(reasoning) => {
            (Fields::of_native(reasoning.native.as_ref(), WIRE)?, &reasoning.text)
        }
        Part::Media(media) => return Some(raw(&media::render(media)?)),
        Part::Native(native) if &*native.wire == WIRE && !is_envelope(native) => {
            return Some(native.item.clone());
        }
        _ => return None,
    };
    fields.set("text", raw(text));
    Some(raw(&fields))
}

fn parse_known(fields: &Fields, speaker: Speaker) -> Option<Part> {
    let (name, key) = only_kind(fields)?;
    match (name, speaker) {
        (TEXT, _) => parse_text(fields.clone()),
        (CALL, Speaker::Model) => call::parse(fields.clone(), key).map(Part::from),
        (RESULT, Speaker::User) => result::parse(fields.clone(), key).map(Part::from),
        (INLINE | FILE, _) => media::parse(fields).map(Part::from),
        _ => None,
    }
}

fn parse_text(mut fields: Fields) -> Option<Part> {
    let text = fields.take_text("text")?;
    if fields.get("thought").is_some_and(|thought| thought.get() == "true") {
        let mut reasoning = Reasoning::new(text);
        reasoning.native = Some(fields.into_native(WIRE));
        return Some(reasoning.into());
    }
    let mut text = Text::new(text);
    text.native = (!fields.is_empty()).then(|| fields.into_native(WIRE));
    Some(text.into())
}

/// Returns the field that determines the kind of a part, and its spelling.
fn only_kind(fields: &Fields) -> Option<(Name, &'static str)> {
    let mut found = KINDS.into_iter().filter_map(|name| Some((name, spelling(fields, name)?)));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
