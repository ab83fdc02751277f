//! Reads and writes the conversations of Ollama's native chat API (<https://docs.ollama.com/api/chat>).
//!
//! If the messages of a request are read and written again, the JSON values are equal. Each message
//! becomes one message; `thinking` becomes reasoning, and `images` become media. Unknown fields become a
//! native part before the others. A message in an unusual form, such as a result without the name of its
//! tool, begins with a native part that contains the JSON of the message. As long as the message is not
//! changed, this JSON is written.
//!
//! Messages of other wires are written in the closest form of this wire. Results get the names of their tools
//! from earlier calls. Images in results are written in a user message after the results. The following is
//! not written: reasoning and native items of other wires, provider-executed calls and their results, approvals,
//! errors, and media other than images in base64.

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
