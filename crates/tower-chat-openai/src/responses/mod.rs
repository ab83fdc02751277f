//! OpenAI Responses as a leaf.

mod keeping;
mod leaf;

pub use self::{keeping::Keeping, leaf::OpenAiResponses};

/// The name of the API, for errors.
const API: &str = "Responses";
