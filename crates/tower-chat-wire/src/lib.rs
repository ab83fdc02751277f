//! For authors of model clients, endpoints and transcript tools: the JSON of providers to and from the
//! messages of `tower-chat`, without loss.
//!
//! ```
//! use tower_chat_wire::{
//!     body::BodyWire,
//!     openai_chat,
//!     validate::{self, Wire},
//! };
//!
//! // A history in the format of one provider ...
//! let recorded = r#"[
//!     {"role": "user", "content": "Does it rain in Paris?"},
//!     {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
//!         "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
//!     {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}
//! ]"#;
//! let messages = openai_chat::parse_messages(recorded)?;
//! assert_eq!(messages[1].calls().next().map(|call| &*call.name), Some("weather"));
//!
//! // ... is a request to another one, which would accept it.
//! let request = tower_chat_core::ChatRequest::new(messages);
//! let body = BodyWire::Anthropic.render_request(&request)?;
//! validate::validate(Wire::Anthropic, &body)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One module per wire, each a pair of pure functions: JSON to
//! [`Message`](tower_chat_core::Message) and back. Nothing here talks to a network.
//!
//! - [`body`]: whole bodies of requests and answers, with their options.
//! - [`anthropic`]: the conversation of Anthropic Messages.
//! - [`openai_chat`]: the messages of OpenAI Chat Completions, and of everything compatible with
//!   it.
//! - [`gemini`]: the contents and the system instruction of Gemini's `generateContent`.
//! - [`openai_responses`]: the items of OpenAI Responses.
//! - [`bedrock_converse`], [`cohere`], [`ollama`]: the messages of Bedrock Converse, Cohere and Ollama.
//! - [`rules`]: what a service takes beyond its wire, and conversations made to fit it.
//! - [`stream`]: limits and framing of answers, and pieces that add up, for model clients.
//! - [`validate`]: whether the provider of a wire would accept a conversation.
//! - `codec`, with the feature of that name: codecs of JSON bodies for `tower_chat::adapt`.

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
mod object;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
mod provider_calls;
mod refusal;
mod request_fields;
pub mod rules;
pub mod stream;
mod text_parts;
pub mod validate;

pub use self::{
    answer_error::{AnswerError, is_refusal_retryable},
    error::WireError,
};
