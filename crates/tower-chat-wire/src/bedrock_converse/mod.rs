//! Reads and writes the conversations of Bedrock's Converse
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>).
//!
//! If a conversation is read and written again, the written JSON is equal to the JSON that was
//! read. The field `system` becomes a system message before all other messages. Each message of the
//! JSON becomes one message. A user message that contains only results becomes a tool message.
//! Texts, calls, results, reasoning and media become parts. Any other block becomes a
//! [`Part::Native`](tower_chat_core::Part::Native) at its position. A JSON value in a result
//! becomes a text.
//!
//! A message in an unusual form (results after other blocks, unknown fields, a call whose input is
//! not an object) begins with a native part that contains the JSON of the message. If the
//! application has not changed the message, this JSON is written.
//!
//! Messages that were read from the JSON of another provider (another wire) are written in the
//! closest form of this wire. The service requires that user and assistant messages alternate.
//! Consecutive messages of the same role are therefore joined, with results before all other
//! blocks. Documents are named `document`, `document 2` and so on. In call ids, `_` replaces every
//! character other than letters, digits, `_` and `-`. A call gets a new id if it has none, or if
//! another call in consecutive assistant messages has the same id. The following parts are not
//! written:
//!
//! - reasoning and native items (unparsed JSON) of other wires;
//! - calls of tools that a provider runs itself, and their results;
//! - media other than images and documents in base64;
//! - blank texts, which the service refuses;
//! - approvals and errors.

mod accumulator;
mod answer;
mod block;
mod documents;
mod message;
mod request;
mod result;
mod tool;
mod turns;

pub(crate) use self::{
    accumulator::BedrockAccumulator,
    answer::{parse as parse_answer, render as render_answer},
    request::{MODEL_FIELDS, parse_request, render as render_as_is},
    tool::render as render_tool,
};
pub use self::{
    message::{RequestMessages, parse_body, parse_messages, render_messages},
    request::render_request,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "bedrock";
