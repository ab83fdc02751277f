//! Anthropic, Gemini and other providers, by way of [genai](https://docs.rs/genai), as a leaf of a
//! `tower-chat` stack.
//!
//! [`GenAiChat`] is a `tower` service of [`ChatRequest`](tower_chat_core::ChatRequest)s for one
//! [`Provider`]. It answers whole or as a stream, as the request asks.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use tower_chat_core::ChatRequest;
//! use tower_chat_genai::{GenAiChat, Provider};
//! use tower_service::Service;
//!
//! // The key is in ANTHROPIC_API_KEY.
//! let mut leaf = GenAiChat::new(Provider::Anthropic)?.with_model("claude-sonnet-4-5");
//! let answer = leaf.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
//! println!("{}", answer.text());
//! # Ok(())
//! # }
//! ```
//!
//! # What genai does, and what it does not
//!
//! genai knows the address of each provider, the environment variable that holds its key, and how
//! it is asked. Its own types cannot hold all that a provider sends, so none of them is stored, and
//! none carries content:
//!
//! - **Anthropic, Gemini, Gemini in Vertex AI**: genai carries request and answer. The body is
//!   written by [`tower_chat_wire`] and given to genai as the one to send; answers are read from
//!   the body, or the frames of the stream, that genai captures. So thinking blocks with their
//!   signatures, redacted thinking, thought signatures and ids go back as they came.
//! - **Mistral, Groq, DeepSeek, xAI, OpenRouter**: genai says where and as who they are asked, and
//!   [`tower_chat_openai::OpenAiChat`] asks them. Mistral gets ids of nine characters.
//! - **Bedrock, Cohere, Ollama, Claude in Vertex AI**: genai says where and as who they are asked;
//!   requests and answers go over the same HTTP client without it. Its adapters for these take no
//!   body but their own, which lacks tools (Cohere), thinking (Ollama, Claude in Vertex AI) or
//!   fields of the service (Bedrock).
//!
//! # What a leaf does and does not do
//!
//! - It sends each request once. Put a tower retry layer above it, and ask
//!   [`GenAiError::is_retryable`] and [`GenAiError::retry_after`]. A streamed call that is refused
//!   fails before there is a response, as a whole one does.
//! - Dropping the future or the response of a call hangs up. It has no timeout of its own.
//! - A streamed answer is complete when its end has come, with the reason for it, and no error
//!   before: anything else is [`GenAiError::Truncated`], whatever had come of it.
//! - None of these APIs keeps conversations: a request with a service conversation id, and one for
//!   a background answer, is refused before anything is sent.
//! - Reasoning goes back to the provider that wrote it, unchanged, and is left out for any other.
//!   Where Anthropic is to go on with a round that it did not begin, `thinking` is left out of that
//!   request: the service would refuse it. Where Gemini 3 is shown calls that it did not sign, they
//!   get the value that Google gives for this.
//! - Names of tools that another provider took and this one refuses are shown with `_` in place of
//!   each character that it does not take.
//! - Through genai, numbers and white space of a *whole* answer's JSON are written anew: `1e2`
//!   becomes `100.0`, and an integer beyond 64 bits loses digits. Streamed answers keep every byte.
//!
//! # What is not there
//!
//! - Bedrock's `InvokeModel`, and AWS signatures (SigV4): the leaf speaks Converse, with a Bedrock
//!   API key.
//! - The endpoints of Gemini and Ollama that are compatible with OpenAI: use `tower-chat-openai`.
//! - The Responses API of DeepSeek, xAI, OpenRouter and Bedrock: use `tower-chat-openai`.
//! - An answer that comes whole although a stream was asked for, from Anthropic or Gemini: genai
//!   shows nothing of it, so it is a truncated one.
//! - Several candidates: such an answer is refused.
//!
//! genai turns on serde_json's feature `preserve_order` for the whole program.

mod anthropic;
mod bedrock;
mod cohere;
mod compatible;
mod direct;
mod error;
mod event_stream;
mod frame;
mod gemini;
mod leaf;
mod lines;
mod mistral;
mod names;
mod object;
mod ollama;
mod provider;
mod refusal;
mod sse;
mod streamed;
mod text_parts;
mod through_genai;

pub use self::{error::GenAiError, leaf::GenAiChat, provider::Provider};
