//! Reads and writes the conversations of Cohere's chat API, version 2
//! (<https://docs.cohere.com/reference/chat>).
//!
//! If the messages of a request are read and written again, the written JSON is equal to the JSON
//! that was read. Each message of the JSON becomes one message. The field `tool_plan` and thinking
//! blocks become reasoning. A document in a result becomes a text, whose
//! [`Native`](tower_chat_core::Native) item contains the other fields of the block. Texts, images,
//! calls and results become parts. Any other block becomes a
//! [`Part::Native`](tower_chat_core::Part::Native) at its position. Unknown fields of a message,
//! such as citations, become a native part before its other parts.
//!
//! In the usual form, the content of an assistant message is a list of blocks. The content of any
//! other message is a string if the message has a single text, and a list of blocks otherwise. A
//! message in any other form begins with a native part that contains the JSON of the message. If
//! the application has not changed the message, this JSON is written.
//!
//! Messages that were read from the JSON of another provider (another wire) are written in the
//! closest form of this wire. The calls of one answer are written with different ids, and each
//! result is written with the id of its call. The following parts are not written:
//!
//! - reasoning and native items of other wires;
//! - calls of tools that a provider runs itself, and their results;
//! - media other than images in user messages;
//! - approvals and errors.

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

/// The name of the field in which a model describes which tools it is going to call.
const PLAN: &str = "tool_plan";
