//! Reads and writes the conversations of Ollama's native chat API
//! (<https://docs.ollama.com/api/chat>).
//!
//! If the messages of a request are read and written again, the written JSON is equal to the JSON
//! that was read. Each message of the JSON becomes one message. The field `thinking` becomes
//! reasoning, and `images` become media. Unknown fields become a native part before the other
//! parts. A message in an unusual form, such as a result without the name of its tool, begins with
//! a native part that contains the JSON of the message. If the application has not changed the
//! message, this JSON is written.
//!
//! Messages that were read from the JSON of another provider (another wire) are written in the
//! closest form of this wire. Each result is written with the name of its tool, which is read from
//! the call if the result has no name. Images in results are written in a user message after the
//! results. The following parts are not written:
//!
//! - reasoning and [`Native`](tower_chat_core::Native) items of other wires;
//! - calls of tools that a provider runs itself, and their results;
//! - media other than images in base64;
//! - approvals and errors.

mod accumulator;
mod answer;
mod message;
mod request;

pub(crate) use self::{
    accumulator::OllamaAccumulator,
    answer::{parse as parse_answer, render as render_answer},
    request::{TOOL, parse_request, render as render_as_is},
};
pub use self::{
    message::{parse_messages, render_messages},
    request::render_request,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "ollama";
