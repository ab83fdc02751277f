//! Reads and writes the messages of OpenAI Chat Completions (`POST /v1/chat/completions`) and of the
//! many compatible services.
//!
//! If a message is read and written again, the JSON values are equal, regardless of the fields that a
//! service has added. Data for which [`Message`](tower_chat_core::Message) and its parts have a field are
//! stored in that field only. All other data are stored in [`Native`](tower_chat_core::Native) items of
//! the wire [`WIRE`]:
//!
//! - A message has a [`Part::Native`] before its other parts: the message object without the fields of
//!   the message (`{"role":"assistant","content":null,"refusal":null}`).
//! - A tool result, a call, a text and media have a `native` field with their other fields.
//! - A content part of an unknown type is a [`Part::Native`] at its position, as a whole.
//!
//! A message without other fields has no native item. The fields of a message take precedence over its native
//! items, so that changes of an application are written. If a value had an unexpected form, its field in the
//! native item is `null`. Examples are arguments that were an object instead of a string, and an `image_url`
//! that was a string instead of an object.
//!
//! A `function_call` of 2023's API and its result have no ids. If an application adds ids later, both are
//! written to a transcript in their original form. For a model, the call is written as an item of
//! `tool_calls`, and the result as a message with the role `tool`.
//!
//! Messages of other wires are written in the closest form of this wire. One tool message with several
//! results becomes several messages; results in a user message are written before its text; media become
//! `image_url`, `input_audio` or `file` parts. The following is not written: reasoning of other wires,
//! approvals, errors, provider-executed calls and their results, native items of other wires, and messages
//! that are then empty. [`with_mistral_ids`] changes the ids to ones that Mistral accepts.
//!
//! ```
//! use tower_chat_wire::openai_chat::{Audience, parse_message, render_message};
//! let json = r#"{"role":"tool","tool_call_id":"call_1","content":"12 degrees"}"#;
//! let message = parse_message(json)?;
//! let result = message.results().next().expect("one result");
//! assert_eq!((result.call_id.as_deref(), result.text().as_str()), (Some("call_1"), "12 degrees"));
//! assert_eq!(
//!     render_message(&message, Audience::Transcript)[0].parse::<serde_json::Value>()?,
//!     serde_json::from_str::<serde_json::Value>(json)?,
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Part::Native`]: tower_chat_core::Part::Native

mod accumulator;
mod answer;
mod call;
mod content;
mod finish;
mod media;
mod message;
mod message_accumulator;
mod mistral_ids;
pub(crate) mod request;
mod result;

pub use self::{
    message::{parse_message, parse_messages, render_message, render_messages},
    mistral_ids::with_mistral_ids,
    request::{RequestForm, render_request},
};

pub(crate) use self::{
    accumulator::ChatAccumulator,
    answer::{error_in, parse as parse_answer},
    finish::{REASONS, usage, with_reasoning_beside},
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "openai-chat";

/// The reader of the JSON that is written.
///
/// ```
/// use tower_chat_core::{Message, ToolResult};
/// use tower_chat_wire::openai_chat::{Audience, render_message};
///
/// let failed = Message::tool_results([ToolResult::error("call_1", "no such city")]);
/// let written = |audience| render_message(&failed, audience)[0].get().to_owned();
/// assert!(!written(Audience::Model).contains("x_error"));
/// assert!(written(Audience::Transcript).contains(r#""x_error":true"#));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Audience {
    /// A model. Only fields of the API are written, because strict services refuse unknown fields.
    Model,
    /// A transcript. The field `x_error: true`, which is not part of the API, marks a tool result as an
    /// error. Readers of this crate always accept the field.
    Transcript,
}

/// The name of [`Native`](tower_chat_core::Native) items with fields that describe only the deltas of a
/// stream, such as the channel of a delta. These items are stored and never written.
pub const DELTA_WIRE: &str = "openai-chat-delta";
