//! The items of OpenAI Responses (`POST /v1/responses`), and of the services that took it over.
//!
//! The input of this wire is a flat list of items: messages, reasoning, calls, outputs. Reading it
//! and writing it again gives an equal list. What one answer of the model put out, one item after
//! the other, is one assistant message; outputs that follow each other are one tool message; any
//! other message item is a message. A plain text as input is one user message, and is written as a
//! list of one.
//!
//! What the vocabulary has a field for stands in that field; the rest is kept in
//! [`Native`](tower_chat_core::Native) items of the wire [`WIRE`]:
//!
//! - of a message item: a [`Part::Native`] before its content, the item without `content`
//!   (`{"type":"message","role":"assistant","id":"msg_1","phase":"commentary"}`);
//! - of a call, an output, a text or media: its `native` field, in the same way;
//! - of reasoning: the whole item, so that summary and encrypted content go back as they came;
//! - a content part of an unknown type: a [`Part::Native`] in its place,
//!   `{"content":[…]}` with the part in the list;
//! - an item of an unknown type, such as `item_reference`, `compaction` or `additional_tools`: a
//!   [`Part::Native`], whole.
//!
//! Tools that the provider runs (`web_search_call` and its like) are calls with
//! [`provider_executed`](tower_chat_core::ToolCall::provider_executed); what they found stays in
//! the native item. The tools of the provider that the caller runs (`computer_call`, `shell_call`,
//! …) are calls that are owed a result. A value that was no text, such as an `action`, is the JSON
//! text of it, with a `null` in its place in the native item.
//!
//! Writing prefers the message's own fields, so that a change to them shows, and never changes
//! what it reads. [`render_input`] sees to it that the list is valid as a whole: a call has an id
//! that no call before it has, and its output has the same; outputs stand before any message that
//! came between them and their call; reasoning that nothing of the model follows any more is left
//! out. So are reasoning, natives and provider-run calls of other wires, approvals, errors and the
//! names of speakers, for which the wire has no field. A call without a result stays one, and a result
//! without its call too, since the service may hold the other; a new result of such a call is
//! written as `function_call_output`.
//!
//! ```
//! use tower_chat_core::Role;
//! use tower_chat_wire::openai_responses::{parse_input, render_input};
//! let json = r#"[
//!     {"role":"user","content":"Is it cold?"},
//!     {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"},
//!     {"type":"function_call","id":"fc_1","call_id":"call_1","name":"look","arguments":"{}"},
//!     {"type":"function_call_output","call_id":"call_1","output":"12 degrees"}
//! ]"#;
//! let messages = parse_input(json)?;
//! let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
//! assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
//! let written = serde_json::to_value(render_input(&messages))?;
//! assert_eq!(written, serde_json::from_str::<serde_json::Value>(json)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Part::Native`]: tower_chat_core::Part::Native

mod accumulator;
mod answer;
mod call;
mod call_ids;
mod content;
mod history;
mod item;
mod items;
mod kind;
mod media;
mod native;
mod order;
mod parse;
mod reasoning;
mod render;
pub(crate) mod request;
mod result;

pub use self::{
    history::{HistoryLocation, parse_conversation_id},
    parse::{Conversation, parse_answer, parse_body, parse_input},
    render::render_input,
    request::{RequestForm, render_request},
};

pub(crate) use self::{
    accumulator::ResponsesAccumulator,
    answer::{parse as parse_whole_answer, usage},
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "openai-responses";
