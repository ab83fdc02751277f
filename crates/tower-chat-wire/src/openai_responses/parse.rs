//! Converts items to messages.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A native part consists only of a native item. A provider-executed call is a call of a tool
//! that the provider runs itself.

use std::collections::{HashMap, HashSet};

use tower_chat_core::{Message, Native, Part, RawJson, Role};

use super::{
    WIRE, call, content,
    kind::{CallKind, OutputKind},
    native::NativeForm,
    reasoning, result,
};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

/// The conversation of a request body.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Conversation {
    /// The value of `instructions`, which applies only to this request.
    pub instructions: Option<String>,
    /// The messages of `input`. If the request has a `previous_response_id` or a `conversation`,
    /// `input` contains only the new messages, and the results in these messages may answer calls
    /// that only the service stores.
    pub messages: Vec<Message>,
}

/// Reads the conversation of a request body: `input` and `instructions`.
///
/// # Errors
///
/// The errors of [`parse_input`]. [`WireError::Field`], if `input` is missing or `instructions` is
/// not a string.
pub fn parse_body(json: &str) -> Result<Conversation, WireError> {
    let mut body = Fields::parse(json, "a request body")?;
    let input = body.take("input").ok_or(WireError::Field {
        what: "a request body",
        field: "input",
        expected: "a text or a list",
    })?;
    let instructions = body.take("instructions").filter(|value| value.get() != "null");
    let instructions = instructions.map(|value| {
        as_text(&value).ok_or(WireError::Field {
            what: "a request body",
            field: "instructions",
            expected: "a text",
        })
    });
    Ok(Conversation {
        instructions: instructions.transpose()?,
        messages: parse_input(input.get())?,
    })
}

/// Reads an `input`: a list of items, or a string, which becomes a user message.
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first item that cannot be read.
/// [`WireError::Json`], if the value is neither a string nor a list.
///
/// ```
/// use tower_chat_wire::openai_responses::parse_input;
/// let messages = parse_input(r#"[{"role":"user","content":"hi"}]"#)?;
/// assert_eq!(messages, [tower_chat_core::Message::user("hi")]);
/// assert_eq!(parse_input(r#""hi""#)?, messages);
/// # Ok::<(), tower_chat_wire::WireError>(())
/// ```
pub fn parse_input(json: &str) -> Result<Vec<Message>, WireError> {
    let input: RawJson = serde_json::from_str(json).map_err(|source| WireError::Json {
        what: "the input",
        expected: "a text or a list",
        source,
    })?;
    if let Some(text) = as_text(&input) {
        return Ok(vec![Message::user(text)]);
    }
    parse_items(&input, "the input")
}

/// Reads the `output` of a response body. Usually returns one assistant message. Returns an empty
/// list if there are no items. The output of a compaction also contains user messages.
///
/// In a stream, some services send each item in its own event (`response.output_item.done`), and no
/// `output` at the end. A list of these items can be read with [`parse_input`].
///
/// # Errors
///
/// The errors of [`parse_input`]. [`WireError::Field`], if `output` is missing.
///
/// ```
/// use tower_chat_wire::openai_responses::parse_answer;
/// let answer = parse_answer(r#"{"id":"resp_1","status":"completed","output":[
///     {"type":"reasoning","id":"rs_1","summary":[]},
///     {"type":"message","id":"msg_1","status":"completed","role":"assistant",
///      "content":[{"type":"output_text","text":"Hello","annotations":[]}]}
/// ]}"#)?;
/// assert_eq!((answer.len(), answer[0].text().as_str()), (1, "Hello"));
/// # Ok::<(), tower_chat_wire::WireError>(())
/// ```
pub fn parse_answer(json: &str) -> Result<Vec<Message>, WireError> {
    let output = Fields::parse(json, "a response")?.take("output").ok_or(WireError::Field {
        what: "a response",
        field: "output",
        expected: "a list",
    })?;
    parse_items(&output, "the output")
}

fn parse_items(list: &RawJson, what: &'static str) -> Result<Vec<Message>, WireError> {
    let items: Vec<RawJson> = list.parse().map_err(|source| WireError::Json {
        what,
        expected: "a list of items",
        source,
    })?;
    let mut reader = ItemReader::default();
    for (index, item) in items.into_iter().enumerate() {
        reader
            .read_item(item)
            .map_err(|source| WireError::InMessage { index, source: Box::new(source) })?;
    }
    Ok(reader.messages)
}

/// Reads a list of items, one by one.
#[derive(Debug, Default)]
struct ItemReader {
    messages: Vec<Message>,
    /// The ids of provider-executed calls, whose output items become native parts.
    provider_call_ids: HashSet<String>,
    /// For each call id: the type of the newest call of a client's tool with this id.
    client_calls: HashMap<String, &'static CallKind>,
}

impl ItemReader {
    fn read_item(&mut self, item: RawJson) -> Result<(), WireError> {
        let fields = Fields::parse(item.get(), "an item")?;
        let Some(kind) = fields.text("type").filter(|kind| kind != "message") else {
            return self.read_message(fields);
        };
        if kind == reasoning::ITEM {
            self.add_part(Role::Assistant, reasoning::parse(item, &fields).into());
        } else if let Some(kind) = CallKind::of_item(&kind) {
            let call = call::parse(fields, kind)?;
            if call.provider_executed {
                self.provider_call_ids.extend(call.id.clone());
            } else if let Some(id) = &call.id {
                self.client_calls.insert(id.clone(), kind);
            }
            self.add_part(Role::Assistant, call.into());
        } else if let Some(kind) = OutputKind::of_item(&kind)
            && !self.is_provider_executed(&fields, kind)
        {
            let call = fields.text("call_id").and_then(|id| self.client_calls.get(&id).copied());
            self.add_part(Role::Tool, result::parse(fields, kind, call)?.into());
        } else {
            self.read_unknown(item, &fields, &kind);
        }
        Ok(())
    }

    /// Adds a message item. An item of the model is added to a preceding assistant message, unless
    /// the writer would then join the two items. Any other item becomes a new message.
    fn read_message(&mut self, mut fields: Fields) -> Result<(), WireError> {
        let role = fields.text("role").ok_or(WireError::Field {
            what: "an item without a type",
            field: "role",
            expected: "a text",
        })?;
        let role = match raw(&role).parse() {
            Ok(role) if role != Role::Tool => role,
            Ok(_) | Err(_) => return Err(WireError::UnknownRole { role }),
        };
        let found = match fields.get("content") {
            Some(found) if found.get() != "null" => content::parse(found, text_type(role))?,
            Some(_) => Vec::new(),
            None => {
                return Err(WireError::Field {
                    what: "a message",
                    field: "content",
                    expected: "a text or a list",
                });
            }
        };
        if !found.is_empty() {
            fields.take("content");
        }
        let is_plain = fields.len() == 1 && !found.is_empty();
        let begins = role != Role::Assistant
            || is_plain
                && self
                    .last_message(role)
                    .is_none_or(|last| last.parts.last().is_some_and(belongs_to_message_item));
        if begins {
            self.messages.push(Message::new(role, Vec::new()));
        }
        if !is_plain {
            self.add_part(role, Part::Native(fields.into_native(WIRE)));
        }
        found.into_iter().for_each(|part| self.add_part(role, part));
        Ok(())
    }

    /// Adds an item of an unknown type as a native part of a message whose role fits the item.
    fn read_unknown(&mut self, item: RawJson, fields: &Fields, kind: &str) {
        let role = fields.get("role").and_then(|role| role.parse().ok());
        let is_answer = kind.ends_with("_output") && self.last_message(Role::Assistant).is_none();
        let native = Part::Native(Native::new(WIRE, item));
        match role {
            Some(role) if !matches!(role, Role::Assistant | Role::Tool) => {
                self.messages.push(Message::new(role, vec![native]));
            }
            _ if kind == "mcp_approval_response" => {
                self.messages.push(Message::new(Role::User, vec![native]));
            }
            _ if is_answer => self.add_part(Role::Tool, native),
            _ => self.add_part(Role::Assistant, native),
        }
    }

    fn is_provider_executed(&self, fields: &Fields, kind: &OutputKind) -> bool {
        kind.is_provider_executed(fields)
            || fields.text("call_id").is_some_and(|id| self.provider_call_ids.contains(&id))
    }

    /// Adds a part to the last message, or to a new message if the last message has another role.
    fn add_part(&mut self, role: Role, part: Part) {
        match self.last_message(role) {
            Some(message) => message.parts.push(part),
            None => self.messages.push(Message::new(role, vec![part])),
        }
    }

    fn last_message(&mut self, role: Role) -> Option<&mut Message> {
        self.messages.last_mut().filter(|message| message.role == role)
    }
}

/// Returns whether a text after the part is written into the same message item.
fn belongs_to_message_item(part: &Part) -> bool {
    content::is_content(part)
        || matches!(part, Part::Native(native)
            if matches!(NativeForm::of_native(native), Some(NativeForm::Message(_))))
}

/// Returns the usual type of content parts with a text in a message of this role.
pub(super) fn text_type(role: Role) -> &'static str {
    if role == Role::Assistant { content::OUTPUT } else { content::INPUT }
}
