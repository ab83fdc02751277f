//! Ollama's own chat API (<https://docs.ollama.com/api/chat>).
//!
//! Reading the messages of a request and writing them again gives equal JSON values. Each message is
//! one message; `thinking` is reasoning, and `images` are media. Fields that are not known are a
//! native part before the others. A message in an unusual form, such as a result that does not name
//! its tool, begins with a native part that holds it as it was read. It is written as it was read as
//! long as nothing in it has changed.
//!
//! Messages of other wires are written as this wire can express them: results take the names of
//! their tools from the calls before them, and images in results follow in a message of the user.
//! Left out are reasoning and native items of other wires, what other providers ran, approvals,
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
