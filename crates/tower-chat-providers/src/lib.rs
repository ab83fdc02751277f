//! For programs without a model client of their own: OpenAI, Anthropic, Gemini, Vertex AI, Bedrock,
//! Cohere, Ollama, Mistral and compatible services as model clients of a `tower-chat` stack.
//!
//! A [`ProviderClient`] is a `tower` service of [`ChatRequest`](tower_chat_core::ChatRequest)s over a
//! transport: any service of HTTP requests that answers with streaming bodies. [`ReqwestTransport`] is
//! the default. Beneath a client stand layers of HTTP: those of [`auth`], tower-http's, and your own.
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
//! - It sends each request once. A retry layer above it asks [`ProviderError::is_retryable`] and
//!   [`ProviderError::retry_after`].
//! - It is ready when its transport is.
//! - Dropping the future or the response of a call hangs up. A stream is read as fast as its reader
//!   asks for it, and not ahead of it.
//! - It has no timeout: that is a layer's work. `tower_chat_layers::idle_timeout::IdleTimeout` over a
//!   client bounds the time to the head of an answer and between its updates; tower-http's
//!   `ResponseBodyTimeoutLayer` beneath it, as above, the time between two pieces of the body.
//!   `tower::timeout` ends with the head, and does not bound a stream that stalls.
//! - A streamed call that is refused fails before there is a response, even if the refusal is the
//!   first event of an answer with the status 200.
//! - A streamed answer is complete when its end was received, with the reason for it. Anything else
//!   is [`ProviderErrorKind::Truncated`], with the text received so far.
//! - Messages and answers are read and written by [`tower_chat_wire`], which loses nothing.
//! - Every answer has [limits](tower_chat_wire::stream::Limits), on the bytes of bodies, lines, events
//!   and refusals and on the depth of JSON. A compressed answer is refused, unless a layer beneath the
//!   client has decompressed it.

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
