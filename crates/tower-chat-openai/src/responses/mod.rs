//! OpenAI Responses as a leaf.

mod answer;
mod body;
mod draft;
mod keeping;
mod leaf;
mod streamed;

pub use self::{keeping::Keeping, leaf::OpenAiResponses};

/// The name of the API, for errors.
const API: &str = "Responses";
