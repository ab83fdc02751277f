//! A policy for `tower`'s retry layer that retries calls of model clients, depending on their
//! errors.
//!
//! [`RetryPolicy`] sends a request again after a failure that may be temporary: a broken
//! connection, an overloaded service, an exhausted rate limit. The policy waits as long as the
//! service requests. If the service requests no wait, the maximum wait doubles with each attempt.
//! Each wait has a random part, so that clients whose calls failed at the same time do not retry at
//! the same time.
//!
//! # Where it belongs
//!
//! ```text
//! PerRunPersistence
//!   ToolLoop
//!     PerServiceCallPersistence
//!       Retry                       here: around one call of one client
//!         ProviderClient
//!           RateLimit, Auth, Trace  layers of HTTP: each attempt passes them
//!             transport
//! ```
//!
//! - Below the persistence layer, which stores the conversation: the persistence layer then
//!   receives only the result of the last attempt, and stores one answer. Above it, a failed
//!   attempt would be a failed call for the persistence layer, although a later attempt succeeds.
//! - Below the tool loop, which calls the model, runs the tools and calls the model again: a retry
//!   then repeats one call of the model. Above the tool loop, a retry would repeat all calls of the
//!   model and all tools that have already run.
//! - Above the layers of authentication: each attempt then obtains a current token, so that an
//!   expired token is not sent again.
//!
//! # What is repeated
//!
//! The policy retries a call that failed before the client returned a response:
//!
//! - A whole answer is returned after its whole body was read. The call is therefore retried if the
//!   body ends early at any position.
//! - A streamed answer is returned when its stream begins. If the stream fails later, its reader
//!   receives the error, and the call is not retried: the application may already have displayed
//!   the text or started a tool, and a second answer would differ from the first.
//!
//! The layers of `tower-chat` store the part of a failed stream that was received. If the
//! application sends the request again, the conversation continues from this part.
//!
//! The retry layer clones the request before each attempt. Cloning is cheap, because clones of a
//! [`ChatRequest`](tower_chat_core::ChatRequest) share its messages.
//!
//! ```
//! use std::time::Duration;
//! use tower::{ServiceBuilder, retry::RetryLayer};
//! use tower_chat_providers::{OpenAiChat, ReqwestTransport, retry::RetryPolicy};
//!
//! let policy = RetryPolicy::new()
//!     .with_max_attempts(5)
//!     .with_deadline(Duration::from_secs(60));
//! let client = ServiceBuilder::new()
//!     .layer(RetryLayer::new(policy))
//!     .service(OpenAiChat::new(ReqwestTransport::new()?));
//! # Ok::<(), tower_chat_providers::ProviderError>(())
//! ```

mod error;
mod policy;

pub use self::{
    error::RetryableError,
    policy::{RetryDelay, RetryPolicy},
};
