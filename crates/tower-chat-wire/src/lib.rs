//! Provider wire formats of tower-chat messages as JSON.
//!
//! One module per wire, each a pair of pure functions: JSON to
//! [`Message`](tower_chat_core::Message) and back. Nothing here talks to a network; model clients and transcript tools build on it.
//!
//! - [`body`]: whole bodies of requests and answers, with their options.
//! - [`anthropic`]: the conversation of Anthropic Messages.
//! - [`openai_chat`]: the messages of OpenAI Chat Completions, and of everything compatible with
//!   it.
//! - [`gemini`]: the contents and the system instruction of Gemini's `generateContent`.
//! - [`openai_responses`]: the items of OpenAI Responses.
//! - [`stream`]: limits and framing of answers, and pieces that add up, for model clients.
//! - [`validate`]: whether the provider of a wire would accept a conversation.

mod answer_error;
pub mod anthropic;
mod as_read;
pub mod bedrock_converse;
pub mod body;
mod call_ids;
#[cfg(feature = "codec")]
pub mod codec;
pub mod cohere;
mod error;
mod fields;
mod finish_fields;
pub mod gemini;
mod names;
mod object;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
mod provider_calls;
mod refusal;
mod request_fields;
pub mod stream;
mod text_parts;
pub mod validate;

pub use self::{
    answer_error::{AnswerError, is_refusal_retryable},
    error::WireError,
};
