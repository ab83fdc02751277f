//! Bedrock's Converse
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>).

mod answer;
mod body;
mod draft;
mod message;
mod turns;

pub(crate) use self::{answer::parse, body::render, draft::BedrockDraft};

/// The name of this wire in native items.
const WIRE: &str = "bedrock";
