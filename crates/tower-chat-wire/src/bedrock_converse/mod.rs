//! Bedrock's Converse
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>).
//!
//! Reading the conversation of a request and writing it again gives equal JSON values. `system` is
//! a system message before all others. Each message is one message: one of the user's that has
//! results alone is a tool message, and the texts, calls, results, reasoning and media of its blocks
//! are parts. Any other block is a [`Part::Native`](tower_chat_core::Part::Native) in its place. A JSON value in a
//! result is a text.
//!
//! A message in an unusual form (results behind other blocks, fields that are not known, a call
//! whose input is no object) begins with a native part that holds it as it was read. It is written
//! as it was read as long as nothing in it has changed.
//!
//! Messages of other wires are written as this wire can express them. The service wants the user and
//! the assistant by turns, so messages in a row of one side are one, with results before all other
//! blocks. Left out are blank texts, which the service refuses, reasoning and native items of other
//! wires, what other providers ran, approvals, errors, and media other than images and documents
//! in base64. Documents are named `document`, `document 2` and so on. Ids of calls consist of letters, digits, `_` and `-`, with `_` instead of any other
//! character, and are different within one turn; calls without an id get one.

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
    request::{parse_request, render as render_as_is},
    tool::render as render_tool,
};
pub use self::{
    message::{RequestMessages, parse_body, parse_messages, render_messages},
    request::render_request,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "bedrock";
