//! The layer under the tool loop: it makes every service call durable.
//!
//! # Where it stands
//!
//! ```text
//! PerRunPersistence
//!   ToolLoop
//!     PerServiceCallPersistence    right: sees every service call
//!       retry, idle timeout, cache
//!         model
//! ```
//!
//! Above the tool loop it would see the run as one service call and lose every round of a run
//! that fails; the tool loop refuses to run there. Layers that call the model client several times
//! (retry, hedge) belong below it: an attempt that failed is then never stored. An
//! [`IdleTimeout`](crate::idle_timeout::IdleTimeout) below it makes a stalled answer an error of the
//! service, as tower's `Timeout` does until the answer has begun; a timeout above it is a cancelled
//! call.

mod layer;
mod service;

pub use self::{layer::PerServiceCallPersistence, service::PerServiceCallPersistenceService};
