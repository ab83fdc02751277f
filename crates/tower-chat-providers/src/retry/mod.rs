//! A retry policy for `tower`'s retry layer that understands the errors of model clients.
//!
//! [`RetryPolicy`] sends a request again after a failure that may be temporary: a broken connection, an
//! overloaded service, an exhausted rate limit. The policy waits as long as the service requests. If the
//! service requests no wait, the wait grows with each attempt. Each wait has a random part, so clients
//! that failed at the same time do not retry at the same time.
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
//! - Beneath the persistence layer: that layer does not see a failed attempt, and stores one answer,
//!   once. Above the persistence layer, each attempt would be a separate service call, and the layer
//!   would handle the failure of each.
//! - Beneath the tool loop: an attempt repeats one call of the model. Above the tool loop, a retry would
//!   repeat the run, and with it tools that have already run.
//! - Above the layers of authentication: each attempt gets its token anew, so an expired token is not
//!   sent twice.
//!
//! # What is repeated
//!
//! The policy repeats a call that failed before it returned a response. The client reads a whole answer
//! to its end before it returns the response, so a whole answer is repeated regardless of the position at
//! which it broke off. For a streamed answer, the client returns the response when the stream begins. If
//! the stream breaks off later, its reader gets the error, and this policy does not act: the application
//! may already have displayed the text or started a tool, and a second answer would begin with other
//! words. The layers of `tower-chat` store the beginning that was received, and a request that is sent
//! again continues from there.
//!
//! Each attempt keeps a clone of the request. Cloning is cheap, because clones of a
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
