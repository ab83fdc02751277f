//! Cohere's chat API, version 2 (<https://docs.cohere.com/reference/chat>).
//!
//! Reading the messages of a request and writing them again gives equal JSON values. Each message is
//! one message; `tool_plan` and blocks of thinking are reasoning, and a document in a result is a text
//! with the rest of its block as native item. Any other block is a
//! [`Part::Native`](tower_chat_core::Part::Native) in its place, and fields that are not known, such as citations, are
//! a native part before the others.
//!
//! The usual content is a list of blocks from the assistant, and a text from anybody else if there is
//! nothing but one. A message in any other form begins with a native part that holds it as it was
//! read. It is written as it was read as long as nothing in it has changed.
//!
//! Messages of other wires are written as this wire can express them. Left out are reasoning and
//! native items of other wires, what other providers ran, approvals, errors, and media other than a
//! user's images. Calls have ids that differ within one answer; results take those of their calls.

mod accumulator;
mod answer;
mod block;
mod message;
mod request;

pub(crate) use self::{
    accumulator::CohereAccumulator,
    answer::{parse as parse_answer, render as render_answer},
    request::{TOOL, parse_request, render as render_as_is},
};
pub use self::{
    message::{parse_messages, render_messages},
    request::render_request,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "cohere";

/// The field in which a model says what it is about to do with tools.
const PLAN: &str = "tool_plan";
