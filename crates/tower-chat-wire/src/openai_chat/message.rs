//! Reads and writes messages.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. The native item with the fields of the message object is the envelope of the message. A
//! provider-executed call is a call of a tool that the provider runs itself.

use tower_chat_core::{Message, Native, Part, RawJson, Reasoning, Role, ToolCall, ToolResult};

use super::{Audience, WIRE, call, content, result};
use crate::{
    WireError,
    fields::{Fields, raw},
    provider_calls::provider_call_ids,
};

/// The fields in which compatible services send readable reasoning.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Reads one message from its JSON object.
///
/// # Errors
///
/// [`WireError`], if the text is not a JSON object, if the role is unknown, or if the content or a
/// call cannot be read.
pub fn parse_message(json: &str) -> Result<Message, WireError> {
    let mut fields = Fields::parse(json, "a message")?;
    let role = fields.text("role").ok_or(WireError::Field {
        what: "a message",
        field: "role",
        expected: "a text",
    })?;
    if matches!(role.as_str(), "tool" | "function") {
        return Ok(Message::tool_results([result::parse(fields)?]));
    }
    let role: Role = raw(&role).parse().map_err(|_| WireError::UnknownRole { role })?;
    let author = fields.take_text("name");
    let mut parts: Vec<Part> = REASONING
        .into_iter()
        .filter_map(|field| Some(reasoning(field, fields.take_text(field)?)))
        .collect();
    parts.extend(content::parse(&mut fields)?);
    let calls = call::parse_all(&mut fields)?;
    if !is_plain(role, &fields, &parts) {
        parts.insert(0, Part::Native(fields.into_native(WIRE)));
    }
    parts.extend(calls.into_iter().map(Part::ToolCall));
    let mut message = Message::new(role, parts);
    message.author = author;
    Ok(message)
}

/// Reads the messages in a JSON list, the value of `messages` in a request body.
///
/// ```
/// use tower_chat_wire::openai_chat::{Audience, parse_messages, render_messages};
///
/// let json = r#"[{"role":"user","content":"Hello."},{"role":"assistant","content":"Hi."}]"#;
/// let messages = parse_messages(json)?;
/// let written = render_messages(&messages, Audience::Transcript);
/// assert_eq!(serde_json::to_string(&written)?, json);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first message that cannot be read.
/// [`WireError::Json`], if the text is not a list.
///
/// ```
/// use tower_chat_wire::openai_chat::parse_messages;
/// let messages = parse_messages(r#"[{"role":"user","content":"hi"}]"#)?;
/// assert_eq!(messages, [tower_chat_core::Message::user("hi")]);
/// # Ok::<(), tower_chat_wire::WireError>(())
/// ```
pub fn parse_messages(json: &str) -> Result<Vec<Message>, WireError> {
    let items: Vec<RawJson> = serde_json::from_str(json).map_err(|source| WireError::Json {
        what: "the messages",
        expected: "a JSON list",
        source,
    })?;
    let messages = items.iter().enumerate().map(|(index, item)| {
        parse_message(item.get())
            .map_err(|source| WireError::InMessage { index, source: source.into() })
    });
    messages.collect()
}

/// Writes a message. Usually returns one JSON object. A message with several tool results becomes
/// several objects. Returns an empty list if the wire has no form for the message.
pub fn render_message(message: &Message, audience: Audience) -> Vec<RawJson> {
    let results = pending_results(message).map(|pending| result::render(pending, audience));
    let results = results.map(|fields| raw(&fields));
    let body = render_body(message, audience).map(|fields| raw(&fields));
    if message.role == Role::Assistant {
        body.into_iter().chain(results).collect()
    } else {
        results.chain(body).collect()
    }
}

/// Writes each message with [`render_message`], and returns all JSON objects in order.
pub fn render_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    audience: Audience,
) -> Vec<RawJson> {
    messages.into_iter().flat_map(|message| render_message(message, audience)).collect()
}

/// Returns whether a message can be written unchanged without an envelope. `rest` are the fields of
/// the JSON that were not removed. An envelope is not necessary if they are the fields that the
/// writer adds: the role, and `"content": null` in an assistant message without content.
fn is_plain(role: Role, rest: &Fields, parts: &[Part]) -> bool {
    if parts.iter().any(content::is_content) {
        rest.len() == 1
    } else {
        role == Role::Assistant && rest.len() == 2 && rest.is_null("content")
    }
}

fn reasoning(field: &str, text: String) -> Part {
    let mut item = Fields::default();
    item.set(field, raw(&()));
    let mut reasoning = Reasoning::new(text);
    reasoning.native = Some(item.into_native(WIRE));
    Part::Reasoning(reasoning)
}

/// Writes the parts of a message besides its tool results, if there is anything to write. For
/// [`Audience::Model`], an assistant message without content and calls is not written.
fn render_body(message: &Message, audience: Audience) -> Option<Fields> {
    if message.role == Role::Tool {
        return None;
    }
    let envelopes: Vec<Fields> = message.parts.iter().filter_map(envelope).collect();
    let calls: Vec<&ToolCall> = message.calls().collect();
    let content = content::render(&message.parts);
    let mut fields = Fields::default();
    message.parts.iter().for_each(|part| render_reasoning(part, &mut fields));
    let says_something =
        content.is_some() || !calls.is_empty() || !envelopes.is_empty() || !fields.is_empty();
    if !says_something && !message.parts.is_empty() {
        return None;
    }
    if envelopes.is_empty() {
        let nothing = if message.role == Role::Assistant { raw(&()) } else { raw("") };
        fields.set("content", nothing);
    }
    envelopes.into_iter().for_each(|envelope| fields.extend(envelope));
    fields.set("role", raw(&message.role));
    fields.set_text("name", message.author.as_deref());
    if let Some(content) = content {
        fields.set("content", content);
    }
    call::render_all(&calls, &mut fields, audience);
    if audience == Audience::Model && message.role == Role::Assistant && calls.is_empty() {
        fields.take_if("tool_calls", is_null_or_empty);
        if fields
            .iter()
            .all(|(name, value)| matches!(name, "role" | "name") || is_null_or_empty(value))
        {
            return None;
        }
    }
    Some(fields)
}

/// Returns whether the value is `null` or an empty list, which means the same as a missing field.
fn is_null_or_empty(value: &RawJson) -> bool {
    value.get() == "null" || value.parse().is_ok_and(|items: Vec<RawJson>| items.is_empty())
}

/// Writes reasoning into the field of this wire from which it was read.
fn render_reasoning(part: &Part, fields: &mut Fields) {
    let Part::Reasoning(reasoning) = part else { return };
    let Some(item) = Fields::of_native(reasoning.native.as_ref(), WIRE) else { return };
    for field in REASONING.into_iter().filter(|field| item.contains(field)) {
        fields.set(field, raw(&reasoning.text));
    }
}

/// Returns the fields in an envelope. Returns `None` for any other part.
fn envelope(part: &Part) -> Option<Fields> {
    let Part::Native(native) = part else { return None };
    is_envelope(native).then(|| Fields::of_native(Some(native), WIRE)).flatten()
}

/// Returns whether a native item is an envelope: only an envelope has the field `role`.
pub(super) fn is_envelope(native: &Native) -> bool {
    Fields::of_native(Some(native), WIRE).is_some_and(|fields| fields.contains("role"))
}

/// Returns the results of the client's tools. The wire has no form for the results of other tools.
fn pending_results(message: &Message) -> impl Iterator<Item = &ToolResult> {
    let provider_call_ids = provider_call_ids(message);
    message.results().filter(move |result| {
        result.call_id.is_none() || !provider_call_ids.contains(&result.call_id.as_deref())
    })
}
