//! The layer below the tool loop. This layer makes every service call durable.
//!
//! # Position in a stack
//!
//! ```text
//! PerRunPersistence
//!   ToolLoop
//!     PerServiceCallPersistence    right: sees every service call
//!       retry, idle timeout, cache
//!         model
//! ```
//!
//! Above the tool loop, the layer would receive the whole run as one service call, and would lose
//! all answers and results of a run that fails. The tool loop refuses such a stack. Layers that
//! call the model client several times (retry, hedge) belong below this layer, because failed
//! attempts are then never stored. An [`IdleTimeoutLayer`](crate::idle_timeout::IdleTimeoutLayer)
//! below this layer turns a stalled answer into an error of the service. tower's `Timeout` does the
//! same for an answer that has not begun. A timeout above this layer cancels the call.

mod layer;
mod service;

pub use self::{layer::PerServiceCallPersistence, service::PerServiceCallPersistenceService};
