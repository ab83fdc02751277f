//! Reads and writes messages.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A mark is a native part at the beginning of a message, with the JSON from which the
//! message was read.

use tower_chat_core::{Message, Native, Part, RawJson, Role};

use super::{
    WIRE, block, result,
    turns::{Conversation, ENVELOPE},
};
use crate::{
    WireError, as_read,
    fields::Fields,
    object::{Object, raw, take, take_text},
    text_parts::native,
};

/// The conversation of a request body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestMessages {
    /// The blocks of the field `system`. If the list is empty, the request has no field `system`.
    pub system: Vec<RawJson>,
    /// The messages, in their order.
    pub messages: Vec<RawJson>,
}

/// Reads the conversation of a request body. The value of `system`, if any, becomes a system
/// message before the messages of the field `messages`.
///
/// # Errors
///
/// The errors of [`parse_messages`]. [`WireError`], if the text is not a JSON object, if the field
/// `messages` is missing, or if `system` is not a list.
pub fn parse_body(json: &str) -> Result<Vec<Message>, WireError> {
    let body = Fields::parse(json, "a request body")?;
    let mut messages = Vec::new();
    if let Some(system) = body.get("system").filter(|system| system.get() != "null") {
        let blocks = as_read::list(system.get(), "the field system")?;
        if !blocks.is_empty() {
            messages.push(parse_system(blocks));
        }
    }
    let expected = "a JSON list";
    let missing = WireError::Field { what: "a request body", field: "messages", expected };
    messages.extend(parse_messages(body.get("messages").ok_or(missing)?.get())?);
    Ok(messages)
}

/// Reads the messages in a JSON list, the value of `messages` in a request body.
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first message that cannot be read.
/// [`WireError::Json`], if the text is not a list.
pub fn parse_messages(json: &str) -> Result<Vec<Message>, WireError> {
    let mut messages = Vec::new();
    for (index, item) in as_read::list(json, "the messages")?.iter().enumerate() {
        let message =
            parse(item).map_err(|source| WireError::InMessage { index, source: source.into() })?;
        messages.push(marked(message, item));
    }
    Ok(messages)
}

/// Reads the message of an answer as an assistant message. The role in the JSON is ignored.
pub(super) fn parse_answer(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = fields(item)?;
    fields.remove("role");
    let message = Message::new(Role::Assistant, parse_parts(fields)?);
    Ok(if parse(item).is_ok() { marked(message, item) } else { message })
}

/// Adds a mark with the JSON `item`, from which the message was read, unless the message would be
/// written as `item` without a mark too.
fn marked(mut message: Message, item: &RawJson) -> Message {
    let mut conversation = Conversation::default();
    conversation.push_usual(&message);
    if !matches!(conversation.messages().as_slice(), [one] if as_read::is_same_json(one, item)) {
        as_read::add_mark(&mut message, WIRE, item);
    }
    message
}

/// Reads the system instructions. A block without a text becomes a native part.
fn parse_system(blocks: Vec<RawJson>) -> Message {
    let parts = blocks.into_iter().map(|block| {
        let text = block.parse().ok().filter(|fields: &Object| fields.len() == 1);
        let text = text.and_then(|mut fields| take_text(&mut fields, "text"));
        let text = text.filter(|text| !text.trim().is_empty());
        text.map_or_else(|| Part::Native(Native::new(WIRE, block)), Part::text)
    });
    Message::new(Role::System, parts.collect())
}

/// Reads one message, and does not add a mark. A user message that contains only results becomes a
/// tool message.
pub(super) fn parse(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = fields(item)?;
    let role = take_text(&mut fields, "role").ok_or(WireError::Field {
        what: "a message",
        field: "role",
        expected: "a text",
    })?;
    let parts = parse_parts(fields)?;
    let has_results_alone =
        !parts.is_empty() && parts.iter().all(|part| part.as_tool_result().is_some());
    let role = match role.as_str() {
        "assistant" => Role::Assistant,
        "user" if has_results_alone => Role::Tool,
        "user" => Role::User,
        _ => return Err(WireError::UnknownRole { role }),
    };
    Ok(Message::new(role, parts))
}

fn fields(item: &RawJson) -> Result<Object, WireError> {
    item.parse().map_err(|source| WireError::Json {
        what: "a message",
        expected: "a JSON object",
        source,
    })
}

/// Reads the fields of a message besides its role. Unknown fields become a native part before the
/// other parts. A field `role` with the value `null` distinguishes this part from a block.
fn parse_parts(mut fields: Object) -> Result<Vec<Part>, WireError> {
    let blocks = take(&mut fields, "content");
    let blocks: Vec<RawJson> = blocks.map_or(Ok(Vec::new()), |blocks| {
        let expected = "a list";
        let error = WireError::Field { what: "a message", field: "content", expected };
        blocks.parse().map_err(|_| error)
    })?;
    fields.retain(|_, value| value.get() != "null");
    if !fields.is_empty() {
        fields.insert(ENVELOPE.to_owned(), raw(&()));
    }
    let envelope = native(WIRE, fields).map(Part::Native);
    let blocks = blocks.into_iter().map(|block| match result::parse(&block) {
        Some(result) => Part::ToolResult(result),
        None => block::parse(block),
    });
    Ok(envelope.into_iter().chain(blocks).collect())
}

/// Writes the conversation of a request according to the rules in the [module
/// documentation](super).
pub fn render_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> RequestMessages {
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message);
    }
    let system = std::mem::take(&mut conversation.system);
    RequestMessages { system, messages: conversation.messages() }
}
