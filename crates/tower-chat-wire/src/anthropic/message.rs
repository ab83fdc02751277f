//! Reads messages, request bodies and answers.
//!
//! An envelope is a native part at the beginning of a message: the JSON fields of the message
//! object besides its content. The fields are written again when the message is sent to a service
//! with this format.

use tower_chat_core::{Message, Part, RawJson, Role};

use super::{
    WIRE,
    content::{self, BlockContext},
    envelope::{self, SYSTEM},
};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

/// Reads the messages of a request body. The value of the field `system`, if any, becomes the first
/// message, before the messages of the field `messages`. All other fields are ignored.
///
/// ```
/// use tower_chat_core::Role;
/// use tower_chat_wire::anthropic::parse_body;
///
/// let body = r#"{"system": "Be brief.", "messages": [{"role": "user", "content": "Hello."}]}"#;
/// let messages = parse_body(body)?;
/// let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
/// assert_eq!(roles, [Role::System, Role::User]);
/// # Ok::<(), tower_chat_wire::WireError>(())
/// ```
///
/// # Errors
///
/// [`WireError`], if the text is not a JSON object, or if its messages are missing or cannot be
/// read.
pub fn parse_body(json: &str) -> Result<Vec<Message>, WireError> {
    let fields = Fields::parse(json, "a request body")?;
    let list = fields.get("messages").ok_or(WireError::Field {
        what: "a request body",
        field: "messages",
        expected: "a JSON list",
    })?;
    let mut messages = Vec::new();
    if let Some(system) = fields.get(SYSTEM) {
        messages.push(parse_system(system.get())?);
    }
    messages.extend(parse_messages(list.get())?);
    Ok(messages)
}

/// Reads the value of the field `system`, a string or a list of blocks, as one system message.
///
/// # Errors
///
/// [`WireError`], if the value is not a string, a list of blocks or `null`.
pub fn parse_system(json: &str) -> Result<Message, WireError> {
    let value: RawJson = json.parse().map_err(|source| WireError::Json {
        what: "the field system",
        expected: "a text or a list",
        source,
    })?;
    let mut fields = Fields::default();
    fields.set("content", value);
    let is_null = fields.is_null("content");
    let mut parts =
        if is_null { Vec::new() } else { take_content(&mut fields, BlockContext::System)? };
    if let Some(rest) = fields.take("content") {
        let mut fields = Fields::default();
        fields.set(SYSTEM, rest);
        parts.push(Part::Native(fields.into_native(WIRE)));
    }
    Ok(Message::new(Role::System, parts))
}

/// Reads the messages in a JSON list, the value of `messages` in a request body.
///
/// Consecutive assistant messages become one message, because the service treats them as one
/// answer: the results of all their calls follow the last of these messages.
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first message that cannot be read.
/// [`WireError::Json`], if the text is not a list.
///
/// ```
/// use tower_chat_wire::anthropic::parse_messages;
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
    let mut messages: Vec<Message> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let mut message = parse_message(item.get())
            .map_err(|source| WireError::InMessage { index, source: source.into() })?;
        match messages.last_mut() {
            Some(last) if context_of(last.role) == context_of(message.role) => {
                add_envelope(&mut message);
                if message.role == Role::Assistant {
                    last.parts.extend(message.parts);
                } else {
                    messages.push(message);
                }
            }
            _ => messages.push(message),
        }
    }
    Ok(messages)
}

/// Reads one message from its JSON object.
///
/// # Errors
///
/// [`WireError`], if the text is not a JSON object, or if its role is unknown or its content cannot
/// be read.
pub fn parse_message(json: &str) -> Result<Message, WireError> {
    let mut fields = Fields::parse(json, "a message")?;
    let role = fields.text("role").ok_or(WireError::Field {
        what: "a message",
        field: "role",
        expected: "a text",
    })?;
    let role = match role.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => return Err(WireError::UnknownRole { role }),
    };
    let mut parts = take_content(&mut fields, context_of(role))?;
    let is_result = |part: &Part| part.as_tool_result().is_some();
    let has_results_alone = role == Role::User && !parts.is_empty() && parts.iter().all(is_result);
    if fields.len() > 1 || role == Role::System {
        parts.insert(0, Part::Native(fields.into_native(WIRE)));
    }
    Ok(Message::new(if has_results_alone { Role::Tool } else { role }, parts))
}

/// Reads the content in the body of a whole answer
/// (`{"type":"message","role":"assistant","content":[…],…}`) as an assistant message. All other
/// fields, such as the usage and the stop reason, are ignored.
///
/// # Errors
///
/// [`WireError`], if the text is not a JSON object with the field `content`. The body of an error
/// has no such field.
///
/// ```
/// use tower_chat_wire::anthropic::parse_answer;
/// let message = parse_answer(r#"{"role":"assistant","content":[{"type":"text","text":"Hello"}]}"#)?;
/// assert_eq!(message.text(), "Hello");
/// # Ok::<(), tower_chat_wire::WireError>(())
/// ```
pub fn parse_answer(json: &str) -> Result<Message, WireError> {
    let mut fields = Fields::parse(json, "an answer")?;
    let parts = take_content(&mut fields, BlockContext::Assistant)?;
    Ok(Message::new(Role::Assistant, parts))
}

/// Removes the field `content`, and returns its parts. Does not remove an empty content, so that it
/// becomes part of the message's native item.
fn take_content(fields: &mut Fields, context: BlockContext) -> Result<Vec<Part>, WireError> {
    let content = fields.get("content").ok_or(WireError::Field {
        what: "a message",
        field: "content",
        expected: "a text or a list",
    })?;
    let parts = match as_text(content) {
        Some(text) if text.trim().is_empty() => Vec::new(),
        Some(text) => vec![Part::text(text)],
        None => content::parse_list(content, context)?,
    };
    if !parts.is_empty() {
        fields.take("content");
    }
    Ok(parts)
}

/// Adds an envelope to a message, if the message does not begin with an envelope. The envelope
/// prevents the writer from joining the message with the previous message.
fn add_envelope(message: &mut Message) {
    if envelope::is_at_beginning(message) {
        return;
    }
    let mut fields = Fields::default();
    fields.set("role", raw(if message.role == Role::Assistant { "assistant" } else { "user" }));
    message.parts.insert(0, Part::Native(fields.into_native(WIRE)));
}

fn context_of(role: Role) -> BlockContext {
    match role {
        Role::System | Role::Developer => BlockContext::System,
        Role::Assistant => BlockContext::Assistant,
        _ => BlockContext::User,
    }
}
