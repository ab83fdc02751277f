//! Reads and writes a content: the object with the role and the parts of one message.
//!
//! A native part of a message is JSON of Gemini that is written again unchanged. A message may
//! begin with an envelope: a native part with the fields of the content besides its parts.

use tower_chat_core::{Message, Native, Part, RawJson, Role};

use super::{
    WIRE,
    part::{self, Speaker},
};
use crate::{
    WireError,
    fields::{Fields, raw},
};

/// Reads one item of `contents`.
pub(super) fn parse(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = Fields::parse(item.get(), "a content")?;
    let speaker = speaker(&fields)?;
    let (mut parts, form) = parse_parts(&mut fields, speaker)?;
    let role = match speaker {
        Speaker::Model => Role::Assistant,
        _ if !parts.is_empty() && parts.iter().all(is_result) => Role::Tool,
        _ => Role::User,
    };
    let usual = if speaker == Speaker::Model { "model" } else { "user" };
    if !(fields.len() == 1 && fields.is_text("role", usual) && form == PartsForm::List) {
        parts.insert(0, envelope(fields, form));
    }
    Ok(Message::new(role, parts))
}

/// Reads the content of an answer. A missing role is read as `model`.
pub(super) fn parse_answer(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = Fields::parse(item.get(), "the content of an answer")?;
    if !fields.contains("role") || fields.is_null("role") {
        fields.set("role", raw("model"));
    }
    if speaker(&fields)? != Speaker::Model {
        let role = fields.text("role").unwrap_or_default();
        return Err(WireError::UnknownRole { role });
    }
    parse(&raw(&fields))
}

/// Reads the system instruction. Its role is ignored.
pub(super) fn parse_system(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = Fields::parse(item.get(), "the system instruction")?;
    let (mut parts, form) = parse_parts(&mut fields, Speaker::System)?;
    if !(fields.is_empty() && form == PartsForm::List) {
        parts.insert(0, envelope(fields, form));
    }
    Ok(Message::new(Role::System, parts))
}

/// Adds an envelope to a message of results, if the message has no envelope. The envelope prevents
/// the writer from joining the message with the previous message.
pub(super) fn add_envelope(message: &mut Message) {
    if envelope_of(message).is_none() {
        let mut fields = Fields::default();
        fields.set("role", raw("user"));
        message.parts.insert(0, envelope(fields, PartsForm::List));
    }
}

/// Returns the fields of the content from which a message was read, without its parts. The field
/// `parts` is `{}` if the content had a single part instead of a list, and `null` if it had a list.
pub(super) fn envelope_of(message: &Message) -> Option<Fields> {
    message.parts.iter().find_map(|part| match part {
        Part::Native(native) if is_envelope(native) => Fields::of_native(Some(native), WIRE),
        _ => None,
    })
}

/// Returns whether a native item is an envelope: only in an envelope, `parts` is `null` or `{}`.
pub(super) fn is_envelope(native: &Native) -> bool {
    Fields::of_native(Some(native), WIRE)
        .and_then(|mut fields| fields.take("parts"))
        .is_some_and(|parts| matches!(parts.get(), "null" | "{}"))
}

/// Writes a content with these parts. The envelope contains the other fields of the content, and
/// determines whether a single part is written without a list.
pub(super) fn render(mut envelope: Fields, parts: &[RawJson]) -> RawJson {
    let is_single = envelope.get("parts").is_some_and(|form| form.get() == "{}");
    envelope.set(
        "parts",
        match parts {
            [part] if is_single && part.get().starts_with('{') => part.clone(),
            parts => raw(parts),
        },
    );
    raw(&envelope)
}

/// The form of the parts of a content. Gemini's own examples of the system instruction use a single
/// part instead of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartsForm {
    List,
    Single,
}

fn speaker(fields: &Fields) -> Result<Speaker, WireError> {
    if !fields.contains("role") || fields.is_null("role") {
        return Ok(Speaker::User);
    }
    let role = fields.text("role").ok_or(WireError::Field {
        what: "a content",
        field: "role",
        expected: "a text",
    })?;
    match role.as_str() {
        "user" | "function" => Ok(Speaker::User),
        "model" => Ok(Speaker::Model),
        _ => Err(WireError::UnknownRole { role }),
    }
}

/// Removes and reads the parts of a content.
fn parse_parts(fields: &mut Fields, speaker: Speaker) -> Result<(Vec<Part>, PartsForm), WireError> {
    let (items, form): (Vec<RawJson>, _) = match fields.take("parts") {
        None => (Vec::new(), PartsForm::List),
        Some(parts) if parts.get() == "null" => (Vec::new(), PartsForm::List),
        Some(part) if part.get().starts_with('{') => (vec![part], PartsForm::Single),
        Some(parts) => {
            let items = parts.parse().map_err(|source| WireError::Json {
                what: "the field parts",
                expected: "a list of parts",
                source,
            })?;
            (items, PartsForm::List)
        }
    };
    let parts = items.iter().map(|item| part::parse(item, speaker)).collect::<Result<_, _>>()?;
    Ok((parts, form))
}

fn envelope(mut fields: Fields, form: PartsForm) -> Part {
    fields.set(
        "parts",
        match form {
            PartsForm::List => raw(&()),
            PartsForm::Single => raw(&Fields::default()),
        },
    );
    Part::Native(fields.into_native(WIRE))
}

fn is_result(part: &Part) -> bool {
    matches!(part, Part::ToolResult(_))
}
