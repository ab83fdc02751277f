//! OpenAI Chat Completions, and every service compatible with it, as a leaf of a `tower-chat` stack.
//!
//! [`OpenAiChat`] is a `tower` service of [`ChatRequest`](tower_chat_core::ChatRequest)s, on top of
//! [async-openai](https://docs.rs/async-openai). It answers whole or as a stream, as the request
//! asks. Nothing a service sends is lost: messages are read by
//! [`tower_chat_wire::openai_chat`], and what else an answer says is in
//! [`Finish::metadata`](tower_chat_core::Finish).
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
//! - It sends each request once: async-openai's own retries are off. Put a tower retry layer above
//!   it, and ask [`OpenAiError::is_retryable`] and [`OpenAiError::retry_after`].
//! - Dropping the future or the response of a call hangs up. async-openai reads a stream in a task
//!   of its own, so it needs a Tokio runtime, and a slow reader does not slow the service down.
//! - It has no timeout of its own. Put a tower timeout above it.
//! - A stream is complete when it said `[DONE]`, and not before: one that ends earlier, by itself
//!   or by a broken connection, is [`OpenAiError::Truncated`], whatever had come of it.
//! - Chat Completions keeps no conversations: a request with a service conversation id, and a
//!   request for a background answer, is refused before anything is sent.
//! - Of several choices (`n`) none is the answer: such an answer is refused.

#[cfg(feature = "adapt")]
pub mod adapt;
mod answer;
mod body;
mod completion;
mod draft;
mod error;
mod leaf;
mod merge;
mod streamed;
mod transport;

pub use self::{error::OpenAiError, leaf::OpenAiChat};
