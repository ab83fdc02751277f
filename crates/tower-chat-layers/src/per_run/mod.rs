//! The layer above the tool loop. This layer begins and ends the run.
//!
//! # Position in a stack
//!
//! ```text
//! PerRunPersistence            right: one run per request
//!   ToolLoop
//!     PerServiceCallPersistence
//!       model
//! ```
//!
//! Below the tool loop, the layer would treat every service call as a separate run. The layer would
//! store each answer with its results as a complete run. If a later service call fails, these
//! messages would remain in the history. A retry layer may be above this layer, where a repeated
//! request continues the same run, or below the loop. A retry layer must not be between this layer
//! and the loop.

mod admission;
mod layer;
mod open_run;
mod process_wait;
mod service;

pub use self::{layer::PerRunPersistence, service::PerRunPersistenceService};
