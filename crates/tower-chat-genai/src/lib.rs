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
//! genai knows the address of each provider, and the environment variable that holds its key. It
//! carries no request and no answer: its own types cannot hold all that a provider sends, and it
//! reads answers without a limit. Bodies are written and read by [`tower_chat_wire`] and by this
//! crate, so thinking blocks with their signatures, redacted thinking, thought signatures, ids, and
//! every byte of arguments go back as they came.
//!
//! **Mistral, Groq, DeepSeek, xAI, OpenRouter** are asked by [`tower_chat_openai::OpenAiChat`].
//! Mistral gets ids of nine characters.
//!
//! How large an answer may be is limited: see [`Limits`](tower_chat_wire::stream::Limits) and
//! [`GenAiChat::with_limits`]. A compressed answer is refused unless
//! [`GenAiChat::with_gzip`] asks for one.
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
//!
//! # What is not there
//!
//! - Bedrock's `InvokeModel`, and AWS signatures (SigV4): the leaf speaks Converse, with a Bedrock
//!   API key.
//! - The endpoints of Gemini and Ollama that are compatible with OpenAI: use `tower-chat-openai`.
//! - The Responses API of DeepSeek, xAI, OpenRouter and Bedrock: use `tower-chat-openai`.
//! - Several candidates: such an answer is refused.
//!
//! genai turns on serde_json's feature `preserve_order`, and reqwest's feature `gzip`, for the whole
//! program. The clients of this crate and of `tower-chat-openai` decompress nothing all the same; one
//! of your own does, unless it is built with `no_gzip`.

mod compatible;
mod direct;
mod error;
mod frame;
mod leaf;
mod mistral;
mod object;
mod provider;
mod refusal;
mod resolution;

pub use self::{error::GenAiError, leaf::GenAiChat, provider::Provider};
