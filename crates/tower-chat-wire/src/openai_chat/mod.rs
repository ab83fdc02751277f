//! The messages of OpenAI Chat Completions (`POST /v1/chat/completions`), and of the many services
//! that took the format over.
//!
//! Reading a message and writing it again gives an equal JSON value, whatever a service added to
//! it. What the vocabulary has a field for stands in that field, and only there; the rest is kept
//! in [`Native`](tower_chat_core::Native) items of the wire [`WIRE`]:
//!
//! - of a message: a [`Part::Native`] before its other parts, the message object without the
//!   fields that the message holds itself (`{"role":"assistant","content":null,"refusal":null}`);
//! - of a tool result, a call, a text or media: its `native` field, in the same way;
//! - a content part of an unknown type: a [`Part::Native`] in its place, whole.
//!
//! An ordinary message has no such item. Writing prefers the message's own fields, so that a
//! change to them shows. An unexpected form is kept as a `null` in the native item, in the place
//! of the value: arguments that were an object instead of a text, an `image_url` that was a text
//! instead of an object.
//!
//! A `function_call` of 2023 and its result have no ids. Where they were given some since, a file
//! has them as they came, and a model sees an item of `tool_calls` and a message of role `tool`.
//!
//! Messages that never were OpenAI JSON are written as the wire can say them: one tool message
//! with several results becomes several; results in a user message come before its text; media
//! become `image_url`, `input_audio` or `file` parts. Left out are reasoning, approvals, errors,
//! calls that a provider ran itself and their results, and the native items of other wires; a
//! message of which nothing is left disappears. [`with_mistral_ids`] makes the ids ones that
//! Mistral takes.
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

/// Who reads what is written.
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
    /// A model: only what the wire knows. Strict services refuse a field they do not know.
    Model,
    /// A file: `x_error: true`, our own field, says that a tool result is an error, for which the
    /// wire has no field. Reading understands it always.
    Transcript,
}

/// The name of [`Native`](tower_chat_core::Native) items that hold what a stream said of its pieces
/// alone, such as the channel that a piece belongs to. They are kept and never written.
pub const DELTA_WIRE: &str = "openai-chat-delta";
