//! Reads and writes the items of OpenAI Responses (`POST /v1/responses`) and of compatible services.
//!
//! The input of this wire is a flat list of items: messages, reasoning, calls, outputs. If a list is
//! read and written again, the lists are equal. Consecutive items of one answer of the model become one
//! assistant message. Consecutive outputs become one tool message. Any other message item becomes one
//! message. A string as input becomes one user message, and is written as a list with one item.
//!
//! Data for which [`Message`](tower_chat_core::Message) and its parts have a field are stored in that
//! field only. All other data are stored in [`Native`](tower_chat_core::Native) items of the wire
//! [`WIRE`]:
//!
//! - A message item has a [`Part::Native`] before its content: the item without `content`
//!   (`{"type":"message","role":"assistant","id":"msg_1","phase":"commentary"}`).
//! - A call, an output, a text and media have a `native` field with their other fields.
//! - The native item of reasoning is the whole item, so that the summary and the encrypted content are sent
//!   back unchanged.
//! - A content part of an unknown type is a [`Part::Native`] at its position: `{"content":[…]}` with the
//!   part in the list.
//! - An item of an unknown type, such as `item_reference`, `compaction` or `additional_tools`, is a
//!   [`Part::Native`], as a whole.
//!
//! Calls of tools that the provider runs (`web_search_call` and similar types) are
//! [provider-executed](tower_chat_core::ToolCall::provider_executed) calls, and their results are in the
//! native item. Calls of the provider's tools that the client runs (`computer_call`, `shell_call`, …) need a
//! result. If the arguments are not a string, such as an `action`, the call has their JSON text, and their
//! field in the native item is `null`.
//! The fields of a message take precedence over its native items, so that changes of an application are
//! written. An unchanged message is written as it was read. [`render_input`] makes the list as a whole
//! valid. Each call has an id that no earlier call has, and its output has the same id. If there are
//! messages between a call and its output, the output is written before these messages. The following is
//! not written: reasoning without a later item of the model; reasoning, native items and
//! provider-executed calls of other wires; approvals and errors; names of authors, for which the wire has
//! no field. A call without a result is written too, and so is a result without a call, because the
//! service may store the missing item. A new result of an unknown call is written as
//! `function_call_output`.
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
