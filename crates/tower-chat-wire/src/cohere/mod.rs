//! Cohere's chat API, version 2 (<https://docs.cohere.com/reference/chat>).

mod accumulator;
mod answer;
mod message;
mod request;

pub use self::request::render_request;
pub(crate) use self::{
    accumulator::CohereAccumulator,
    answer::{parse as parse_answer, render as render_answer},
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "cohere";

/// The field in which a model says what it is about to do with tools.
const PLAN: &str = "tool_plan";
