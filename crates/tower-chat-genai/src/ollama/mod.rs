//! Ollama's own chat API (<https://docs.ollama.com/api/chat>).

mod answer;
mod body;
mod draft;
mod message;

pub(crate) use self::{answer::parse, body::render, draft::OllamaDraft};

/// The name of this wire in native items.
const WIRE: &str = "ollama";
