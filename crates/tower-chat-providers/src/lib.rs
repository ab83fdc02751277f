//! OpenAI, Anthropic, Gemini, Vertex AI, Bedrock, Cohere, Ollama, Mistral and compatible services as
//! leaves of a `tower-chat` stack, over any HTTP transport.
//!
//! A [`ProviderClient`] is a `tower` service of [`ChatRequest`](tower_chat_core::ChatRequest)s over a
//! transport: any service of HTTP requests. Beneath it stand layers of HTTP, tower-http's and others,
//! such as those of [`auth`].

pub mod auth;
mod client;
mod error;
mod exchange;
#[cfg(feature = "openai")]
mod openai_chat;
mod provider;
mod retry_after;
#[cfg(feature = "reqwest")]
mod transport;

#[cfg(feature = "openai")]
pub use self::openai_chat::{OpenAiChat, OpenAiChatApi};
#[cfg(feature = "reqwest")]
pub use self::transport::ReqwestTransport;
pub use self::{
    client::ProviderClient,
    error::{ProviderError, ProviderErrorKind, Refusal},
    provider::{Exchange, Provider, Settings},
};
