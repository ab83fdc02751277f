//! Model clients for `tower-chat` stacks: OpenAI, Anthropic, Gemini, Vertex AI, Bedrock, Cohere,
//! Ollama, Mistral and compatible services. A model client is the innermost service of a stack, and
//! sends requests to a provider. Programs that do not have their own model client need this crate.
//!
//! A [`ProviderClient`] is a `tower` service of [`ChatRequest`](tower_chat_core::ChatRequest)s,
//! which sends HTTP requests through a transport. A transport is a service of HTTP requests whose
//! responses have streaming bodies. [`ReqwestTransport`] is the default transport. HTTP layers can
//! be added between a client and its transport: the layers of [`auth`], layers of tower-http, and
//! an application's own layers.
//!
//! ```
//! # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use std::time::Duration;
//! use tower_chat_core::ChatRequest;
//! use tower_chat_providers::OpenAiChat;
//! use tower_http::timeout::ResponseBodyTimeoutLayer;
//! use tower_service::Service;
//!
//! let silence = Duration::from_secs(60);
//! let mut client = OpenAiChat::compatible("http://localhost:8000/v1")?
//!     .with_layer(ResponseBodyTimeoutLayer::new(silence))
//!     .with_key("sk-...")?
//!     .with_model("qwen3");
//! std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
//! let answer = client.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
//! println!("{}", answer.text());
//! # Ok(())
//! # }
//! ```
//!
//! | client | feature | keys |
//! |---|---|---|
//! | [`OpenAiChat`], [`OpenAiResponses`] | `openai` | `OPENAI_API_KEY`, those of [`CompatibleService`]s |
//! | [`Anthropic`] | `anthropic` | `ANTHROPIC_API_KEY` |
//! | [`Gemini`] | `gemini` | `GEMINI_API_KEY` |
//! | [`Vertex`]: Gemini and Claude | `vertex` | `VERTEX_API_KEY`, or tokens of a source |
//! | [`Bedrock`] | `bedrock` | `BEDROCK_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`; signatures with `sigv4` |
//! | [`Cohere`] | `cohere` | `COHERE_API_KEY` |
//! | [`Ollama`] | `ollama` | |
//! | [`Mistral`] | `mistral` | `MISTRAL_API_KEY` |
//!
//! # What a client does and does not do
//!
//! - A client sends each request once. A retry layer above the client calls
//!   [`ProviderError::is_retryable`] and [`ProviderError::retry_after`].
//! - A client is ready when its transport is ready.
//! - Dropping the future or the response of a call closes or resets the connection of the HTTP
//!   response. The client reads a streamed body only when the caller polls the stream of updates.
//! - A client has no timeout. `tower_chat_layers::idle_timeout::IdleTimeoutLayer` above a client
//!   limits the time until the beginning of an answer and the time between two updates.
//!   tower-http's `ResponseBodyTimeoutLayer` below the client, as in the example, limits the time
//!   between two pieces of the body. `tower::timeout` limits only the time until the response, and
//!   does not detect a stream that stalls.
//! - If the service refuses a streamed call, the call fails and returns no response, even if the
//!   refusal is the first event of a response with the status 200.
//! - A streamed answer is complete when its finish reason and its end were received. If the stream
//!   ends in any other way, the stream of updates yields the error [`ProviderErrorKind::Truncated`]
//!   with the text that was received.
//! - [`tower_chat_wire`] reads and writes messages and answers. No field is lost.
//! - [Limits](tower_chat_wire::stream::Limits) apply to every answer: to the number of bytes of
//!   bodies, lines, events and errors, and to the nesting depth of JSON. A layer below the client
//!   must decompress compressed answers. Without such a layer, the call fails.

#[cfg(feature = "async-openai")]
pub mod adapt;
pub mod auth;
mod body_kind;
mod client;
mod error;
mod exchange;
mod frames;
mod full_body;
mod provider;
pub mod rate_limit;
mod refused_content;
#[cfg(feature = "retry")]
pub mod retry;
mod retry_after;
mod streamed;
#[cfg(feature = "structured")]
pub mod structured;
#[cfg(feature = "reqwest")]
mod transport;

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "bedrock")]
mod bedrock;
#[cfg(feature = "cohere")]
mod cohere;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(feature = "mistral")]
mod mistral;
#[cfg(feature = "ollama")]
mod ollama;
#[cfg(feature = "openai")]
mod openai_chat;
#[cfg(feature = "openai")]
mod openai_responses;
#[cfg(feature = "vertex")]
mod vertex;

#[cfg(feature = "anthropic")]
pub use self::anthropic::{Anthropic, AnthropicApi};
#[cfg(feature = "bedrock")]
pub use self::bedrock::{Bedrock, BedrockApi};
#[cfg(feature = "cohere")]
pub use self::cohere::{Cohere, CohereApi};
#[cfg(feature = "gemini")]
pub use self::gemini::{Gemini, GeminiApi};
#[cfg(feature = "mistral")]
pub use self::mistral::{Mistral, MistralApi};
#[cfg(feature = "ollama")]
pub use self::ollama::{Ollama, OllamaApi};
#[cfg(feature = "openai")]
pub use self::openai_chat::{CompatibleService, OpenAiChat, OpenAiChatApi};
#[cfg(feature = "openai")]
pub use self::openai_responses::{HistoryStorage, OpenAiResponses, OpenAiResponsesApi};
#[cfg(feature = "reqwest")]
pub use self::transport::ReqwestTransport;
#[cfg(feature = "vertex")]
pub use self::vertex::{Vertex, VertexApi};
pub use self::{
    client::ProviderClient,
    error::{ProviderError, ProviderErrorKind, Refusal},
    frames::StreamFraming,
    full_body::{FullBody, FullBodyLayer},
    provider::{Exchange, Provider, Settings},
};
