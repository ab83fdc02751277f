//! Bedrock's Converse
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>).

mod accumulator;
mod answer;
mod message;
mod request;
mod turns;

pub use self::request::render_request;
pub(crate) use self::{
    accumulator::BedrockAccumulator,
    answer::{parse as parse_answer, render as render_answer},
    request::render_tool,
};

/// The name of this wire in [`Native`](tower_chat_core::Native) items.
pub const WIRE: &str = "bedrock";
