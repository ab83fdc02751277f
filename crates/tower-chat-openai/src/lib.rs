//! OpenAI Chat Completions, OpenAI Responses, and every service compatible with either, as leaves of
//! a `tower-chat` stack.
//!
//! [`OpenAiChat`] and [`OpenAiResponses`] are `tower` services of
//! [`ChatRequest`](tower_chat_core::ChatRequest)s. They answer whole or as a stream, as the request
//! asks. Addresses and keys are those of [async-openai](https://docs.rs/async-openai), whose types the
//! feature `adapt` knows. Nothing a service sends is lost: messages are read by [`tower_chat_wire`], and what else an
//! answer says is in [`Finish::metadata`](tower_chat_core::Finish).
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use tower_chat_core::ChatRequest;
//! use tower_chat_openai::OpenAiChat;
//! use tower_service::Service;
//!
//! let mut leaf = OpenAiChat::compatible("http://localhost:11434/v1", None)?.with_model("qwen3");
//! let answer = leaf.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
//! println!("{}", answer.text());
//! # Ok(())
//! # }
//! ```
//!
//! # What a leaf does and does not do
//!
//! - It sends each request once. Put a tower retry layer above it, and ask
//!   [`OpenAiError::is_retryable`] and [`OpenAiError::retry_after`].
//! - Dropping the future or the response of a call hangs up. A stream is read as fast as its reader
//!   asks for it, and not ahead of it.
//! - How large an answer may be is limited: see [`Limits`](tower_chat_wire::stream::Limits). A
//!   compressed answer is refused unless the feature `gzip` is on and the leaf asks for one.
//! - It has no timeout of its own. Put a tower timeout above it.
//! - A stream is complete when the service said so, by `[DONE]` or by the event that carries the
//!   whole response, and not before: one that ends earlier, by itself or by a broken connection, is
//!   [`OpenAiError::Truncated`], whatever had come of it.
//! - Of several choices (`n`) of Chat Completions none is the answer: such an answer is refused.
//!
//! # Who keeps the history
//!
//! Chat Completions keeps no conversations: a request with a service conversation id, and a request
//! for a background answer, is refused before anything is sent.
//!
//! Of Responses [`Keeping`] says it. By default the caller keeps the history, so that a history
//! store above the leaf does. Where the service does, every answer names the id to go on from, which
//! a history store remembers after each service call. By default such a store takes it for a
//! conflict that everything would be kept twice; its `ConflictPolicy` must let the service have its
//! way.
//!
//! A service that keeps the history knows nothing of tools that have run until the next request
//! tells it. If a run stops between an answer that calls tools and that request, OpenAI refuses to
//! go on from that answer without their results. With [`Keeping::PreviousResponse`], and a store
//! that persists per run, the next run goes on from the answer before that.
//!
//! # What is recorded and not played
//!
//! The tests play recorded traffic of `azure`, `deepseek`, `groq`, `mistral`, `ollama`,
//! `openai_chat`, `openai_responses`, `openrouter`, `xai` and others. Of these folders every file is
//! asserted on but the two of Ollama's own `/api/chat`, a wire that is not OpenAI's. Exchanges in
//! them that are no calls of a model are left aside: tokens counted (`/responses/input_tokens`),
//! histories compacted (`/responses/compact`), telemetry, and pictures and documents fetched.

#[cfg(feature = "adapt")]
pub mod adapt;
mod connection;
mod error;
mod leaf;
mod object;
mod responses;
mod transport;

pub use self::{
    error::OpenAiError,
    leaf::OpenAiChat,
    responses::{Keeping, OpenAiResponses},
};
