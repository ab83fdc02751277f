//! Reads and writes the conversations of Cohere's chat API, version 2
//! (<https://docs.cohere.com/reference/chat>).
//!
//! If the messages of a request are read and written again, the JSON values are equal. Each message
//! becomes one message. `tool_plan` and thinking blocks become reasoning, and a document in a result
//! becomes a text, with the other fields of its block as a native item. Any other block becomes a
//! [`Part::Native`](tower_chat_core::Part::Native) at its position. Unknown fields, such as citations,
//! become a native part before the others.
//!
//! The usual content of an assistant's message is a list of blocks. The usual content of any other
//! message is a string if it has only one text. A message in any other form begins with a native part
//! that contains the JSON of the message. As long as the message is not changed, this JSON is written.
//!
//! Messages of other wires are written in the closest form of this wire. The following is not written: reasoning
//! and native items of other wires, provider-executed calls and their results, approvals, errors, and media
//! other than images of a user. Calls in one answer have different ids, and results have the ids of their
//! calls.

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

/// The field in which a model describes which tools it is going to call.
const PLAN: &str = "tool_plan";
