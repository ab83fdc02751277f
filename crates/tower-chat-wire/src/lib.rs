//! Converts the JSON of providers to the messages of `tower-chat` and back, without loss. Authors
//! of model clients, endpoints and programs that read transcripts need this crate.
//!
//! ```
//! use tower_chat_wire::{
//!     body::BodyWire,
//!     openai_chat,
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
//! // ... is converted to a request that another provider accepts.
//! let request = tower_chat_core::ChatRequest::new(messages);
//! let body = BodyWire::Anthropic.render_request(&request)?;
//! tower_chat_testkit::validate::validate(tower_chat_testkit::validate::Wire::Anthropic, &body)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A wire is the JSON format of one provider's API. There is one module for each wire, with pure
//! functions that convert JSON to [`Message`](tower_chat_core::Message) and back. The crate does
//! not use a network.
//!
//! - [`body`]: whole bodies of requests and answers, with their options.
//! - [`anthropic`]: the conversations of Anthropic Messages.
//! - [`openai_chat`]: the messages of OpenAI Chat Completions and compatible APIs.
//! - [`gemini`]: the contents and the system instruction of Gemini's `generateContent`.
//! - [`openai_responses`]: the items of OpenAI Responses.
//! - [`bedrock_converse`], [`cohere`], [`ollama`]: the messages of Bedrock Converse, Cohere and
//!   Ollama.
//! - [`rules`]: rules of services beyond their JSON format, such as the characters of tool names,
//!   and functions that change a request to conform to these rules.
//! - [`stream`]: limits, framing and accumulators of streamed answers, for model clients.
//! - `codec`, with the feature `codec`: codecs of JSON bodies for `tower_chat::adapt`.

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

pub use self::{
    answer_error::{AnswerError, is_refusal_retryable},
    error::WireError,
};
