//! Cohere's chat API, version 2 (<https://docs.cohere.com/reference/chat>).

mod answer;
mod body;
mod draft;
mod message;

pub(crate) use self::{answer::parse, body::render, draft::CohereDraft};

/// The name of this wire in native items.
const WIRE: &str = "cohere";

/// The field in which a model says what it is about to do with tools.
const PLAN: &str = "tool_plan";
