//! A limit on the silence of a model client, before its answer and within it.
//!
//! `tower::timeout` ends with the head of a response, and does not detect a streamed answer that
//! stalls. [`IdleTimeoutLayer`] limits each wait: for the head, and for every update after it. The
//! total time of an answer is not limited while updates arrive.
//!
//! # Position in a stack
//!
//! ```text
//! PerRunPersistence
//!   ToolLoop
//!     PerServiceCallPersistence
//!       retry, cache
//!         IdleTimeout           right: a stalled call is a service call that failed
//!           model client
//! ```
//!
//! The stored messages are those that the persistence mode defines for a failed service call. A retry
//! above this layer repeats a call whose head was late. The retry does not repeat a call whose answer had
//! begun, but the same request, sent again by its caller, continues after the stored messages.
//!
//! If this layer is above `PerServiceCallPersistence`, the persister sees a caller that disconnects,
//! instead of a failed service. If it is above the tool loop, the time of tools counts as silence of
//! the model.

mod error;
mod layer;
mod service;

pub use self::{error::IdleTimeoutExceeded, layer::IdleTimeoutLayer, service::IdleTimeout};
