//! A limit on the time for which a model client sends no update, before its answer and during its
//! answer.
//!
//! `tower::timeout` limits only the time until the call returns a response, and does not detect a
//! streamed answer that stalls. [`IdleTimeoutLayer`] limits this time and also the time until each
//! further update. The total time of an answer is not limited while updates arrive.
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
//! After the timeout, the store contains the same messages as after any failed service call. A
//! retry layer above this layer repeats a call that returned no response in time. The retry layer
//! does not repeat a call that stalled during the stream of its answer. If the caller sends the
//! same request again, the run continues after the stored messages.
//!
//! If this layer is above `PerServiceCallPersistence`, that layer handles a timeout as a caller
//! that has disconnected, and not as a failed service call. If this layer is above the tool loop,
//! the time in which tools run is also limited.

mod error;
mod layer;
mod service;

pub use self::{error::IdleTimeoutExceeded, layer::IdleTimeoutLayer, service::IdleTimeout};
