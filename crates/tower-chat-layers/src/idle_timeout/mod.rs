//! A limit on silence: how long a model client may send nothing, before its answer and within it.
//!
//! `tower::timeout` ends with the head of a response, so a streamed answer that stalls is never
//! found by it. [`IdleTimeout`] bounds each wait: for the head, and for every update after it. An
//! answer may take as long as it likes while more of it arrives.
//!
//! # Where it stands
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
//! What is stored is what the persistence mode says for a service call that fails. A retry above it
//! sends a call again whose head was late; an answer that had begun is not sent again by a retry,
//! but the same request, sent again by its caller, goes on after what is stored.
//!
//! Above `PerServiceCallPersistence` the persister sees a caller who goes away, instead of a service
//! that failed. Above the tool loop the time that tools take counts as silence of the model.

mod error;
mod layer;
mod service;

pub use self::{error::IdleTimeoutExceeded, layer::IdleTimeout, service::IdleTimeoutService};
