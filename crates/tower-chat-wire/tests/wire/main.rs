//! Tests of reading and writing the formats of all providers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is a failing test"
)]

mod accumulators;
mod answer_end;
mod anthropic;
mod anthropic_generated;
mod anthropic_recorded;
mod bedrock_server_tools;
mod body;
mod codec;
mod exact_generated;
mod exact_recorded;
mod gemini;
mod gemini_generated;
mod gemini_recorded;
mod json_rng;
mod openai_chat;
mod openai_chat_generated;
mod openai_chat_recorded;
mod openai_responses;
mod openai_responses_generated;
mod openai_responses_recorded;
mod rules;
