//! The layer above the tool loop: it begins and ends the run.
//!
//! # Where it stands
//!
//! ```text
//! PerRunPersistence            right: one run per request
//!   ToolLoop
//!     PerServiceCallPersistence
//!       model
//! ```
//!
//! Below the tool loop it would take every service call for a run of its own: with no tool loop
//! above the history it puts first, each round would be stored as a conversation turn, and a
//! failed round would leave the earlier ones behind. Retry layers belong above it (the same
//! request is the same run) or below the loop, never between two halves of a run.

mod admission;
mod approved_elsewhere;
mod layer;
mod lease_wait;
mod open_run;
mod service;

pub use self::{layer::PerRunPersistence, service::PerRunPersistenceService};
