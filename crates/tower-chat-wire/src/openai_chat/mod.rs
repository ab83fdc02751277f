//! Reads and writes the messages of OpenAI Chat Completions (`POST /v1/chat/completions`) and of
//! compatible services.
//!
//! If a message is read and written again, the written JSON is equal to the JSON that was read,
//! including fields that only some services have. If a [`Message`](tower_chat_core::Message) or one
//! of its parts has a field for a value, the value is stored only in this field. All other values
//! are stored as JSON, in [`Native`](tower_chat_core::Native) items of this format (the wire
//! [`WIRE`]):
//!
//! - A [`Part::Native`] before the other parts of a message contains the other fields of the
//!   message object (`{"role":"assistant","content":null,"refusal":null}`).
//! - The `native` field of a tool result, a call, a text or media contains its other fields.
//! - A content part of an unknown type becomes a [`Part::Native`] with the whole content part, at
//!   its position.
//!
//! A message without other fields has no native item. The fields of a message take precedence over
//! its native items, so that changes by an application are written. If a value was read in an
//! unexpected form, the native item contains `null` for its field. Examples are arguments that were
//! an object instead of a string, and an `image_url` that was a string instead of an object.
//!
//! A `function_call` of the API of 2023 and its result have no ids. If an application adds ids to
//! both, [`Audience`] decides how the call and the result are written. For a transcript, both are
//! written in their original form. For a model, the call becomes an item of `tool_calls`, and the
//! result becomes a message with the role `tool`.
//!
//! Messages that were read from the JSON of another provider (another wire) are written in the
//! closest form of this wire. A tool message with several results becomes several messages. Results
//! in a user message are written before its text. Media become `image_url`, `input_audio` or `file`
//! parts. The following parts are not written, and neither is a message that has no other parts:
//!
//! - reasoning and native items of other wires;
//! - calls of tools that a provider runs itself, and their results;
//! - approvals and errors.
//!
//! [`with_mistral_ids`] converts call ids to the form that Mistral accepts.
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
    finish::{REASONS, usage, with_separate_reasoning},
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "openai-chat";

/// Selects who reads the JSON that is written: a model or a transcript.
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
    /// A model. Only fields of the API are written, because some services refuse unknown fields.
    Model,
    /// A transcript. Results that are errors are written with the field `x_error: true`, which is
    /// not part of the API. [`parse_message`] always reads this field.
    Transcript,
}

/// The wire of [`Native`](tower_chat_core::Native) items with fields that describe the deltas of a
/// stream, such as the channel of a delta. The items are stored with the message. No request
/// contains them.
pub const DELTA_WIRE: &str = "openai-chat-delta";
