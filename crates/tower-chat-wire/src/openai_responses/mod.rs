//! Reads and writes the items of OpenAI Responses (`POST /v1/responses`) and of compatible
//! services.
//!
//! A wire is a provider's JSON format. The input of this wire is a flat list of items: messages,
//! reasoning, calls, and outputs of calls. Consecutive items of the model become one assistant
//! message, and consecutive outputs become one tool message. Any other item of the type `message`
//! becomes one message. A list that is read and written again does not change. An input that is a
//! string becomes one user message, and is written as a list with one item.
//!
//! If a [`Message`](tower_chat_core::Message) or one of its parts has a field for a value, the
//! value is stored only in this field. All other values are stored in
//! [`Native`](tower_chat_core::Native) items of the wire [`WIRE`]:
//!
//! - A [`Part::Native`] before the content of a message item contains the item without `content`
//!   (`{"type":"message","role":"assistant","id":"msg_1","phase":"commentary"}`).
//! - The `native` field of a call, an output, a text or media contains its other fields.
//! - The native item of reasoning contains the whole item, so that the summary and the encrypted
//!   content are sent back unchanged.
//! - A content part of an unknown type becomes a [`Part::Native`] at its position. The native part
//!   contains an object with a list: `{"content":[…]}`.
//! - An item of an unknown type, such as `item_reference`, `compaction` or `additional_tools`,
//!   becomes a [`Part::Native`] with the whole item.
//!
//! Call items become calls:
//!
//! - If the provider runs the tool (`web_search_call` and similar types), the call is
//!   [provider-executed](tower_chat_core::ToolCall::provider_executed), and its native item
//!   contains the result.
//! - If the provider defines the tool and the client runs it (`computer_call`, `shell_call`, …),
//!   the client must send a result.
//! - Instead of a string with arguments, some items have an object, such as `action`. The
//!   [`arguments`](tower_chat_core::ToolCall::arguments) of the call are then the JSON text of the
//!   object, and the native item contains `null` in its place.
//!
//! [`render_input`] writes an input that the service accepts. The fields of a message take
//! precedence over its native items, so that changes by an application are written.
//!
//! - Each call is written with an id that no earlier call has, and its output with the same id.
//! - If there are messages between a call and its output, the output is written before them.
//! - A call without a result and a result without a call are written, because the service may store
//!   the missing item. A new result whose call is not in the messages is written as
//!   `function_call_output`.
//! - Not written are reasoning without a later item of the model, approvals, errors, names of
//!   authors, and the reasoning, native items and provider-executed calls of other wires.
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
