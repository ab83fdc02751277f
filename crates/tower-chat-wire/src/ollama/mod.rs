//! Ollama's own chat API (<https://docs.ollama.com/api/chat>).

mod accumulator;
mod answer;
mod message;
mod request;

pub use self::request::render_request;
pub(crate) use self::{
    accumulator::OllamaAccumulator,
    answer::{parse as parse_answer, render as render_answer},
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "ollama";
