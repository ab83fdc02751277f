//! Reads and writes the conversations of Bedrock's Converse
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>).
//!
//! If a conversation is read and written again, the JSON values are equal. `system` becomes a system
//! message before all others. Each message becomes one message; a user message with only results becomes
//! a tool message. Texts, calls, results, reasoning and media become parts. Any other block becomes a
//! [`Part::Native`](tower_chat_core::Part::Native) at its position. A JSON value in a result becomes a
//! text.
//!
//! A message in an unusual form (results after other blocks, unknown fields, a call whose input is not
//! an object) begins with a native part that contains the JSON of the message. As long as the message is
//! not changed, this JSON is written.
//!
//! Messages of other wires are written in the closest form of this wire. The service requires that user and
//! assistant alternate, so consecutive messages of one role are joined, with results before all other blocks.
//! The following is not written: blank texts, which the service refuses; reasoning and native items of other
//! wires; provider-executed calls and their results; approvals and errors; media other than images and
//! documents in base64. Documents are named `document`, `document 2` and so on. Call ids are written with
//! letters, digits, `_` and `-`; `_` replaces any other character. Calls in one turn are written with
//! different ids, and a call without an id gets one.

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
