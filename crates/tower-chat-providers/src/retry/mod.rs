//! A policy for `tower`'s retry layer that reads the errors of model clients.
//!
//! [`RetryPolicy`] sends a request again after a failure that another attempt may not meet: a broken
//! connection, an overloaded service, an exhausted rate limit. It waits as long as the service asks
//! it to, or else for a time that grows with each attempt and is drawn at random, so that clients
//! that failed together do not come back together.
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
//! - Beneath the persistence layer an attempt that fails is not seen by it: one answer is stored, once.
//!   Above it, each attempt is a service call of its own, whose failure the layer has already
//!   handled.
//! - Beneath the tool loop an attempt repeats one call. Above it, a retry repeats the run, and with it
//!   tools that have already run.
//! - Above the layers of authentication each attempt asks for its token anew, so an expired token is
//!   not sent twice.
//!
//! # What is repeated
//!
//! A call that failed before there was a response. The client reads an answer that is not streamed to
//! its end before it responds, so that answer is repeated whatever part of it was missing. A streamed
//! answer is a response as soon as it begins. If it breaks off later, its reader has the error and
//! this policy has nothing to do with it: what was read may have been shown to a user or have started
//! a tool, and a second answer would begin with other words. The layers of `tower-chat` store
//! what such a run had, and a request that is sent again goes on from there.
//!
//! An attempt keeps a clone of the request. That is cheap: the messages of a
//! [`ChatRequest`](tower_chat_core::ChatRequest) are shared between clones.
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
