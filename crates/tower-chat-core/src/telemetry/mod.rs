//! Telemetry of stores and layers: metrics of the facade [`metrics`](https://docs.rs/metrics) and
//! events of `tracing`.
//!
//! [`metric`] has all metrics. They are recorded by the recorder that the program has installed.
//! Without a recorder, nothing is measured. [`describe`] registers the units and descriptions with
//! the recorder.
//!
//! Events have the target `tower_chat::store` or `tower_chat::run` and the level `debug`. Events
//! for operators have the level `warn` or `error` and the target of their module. The functions of
//! [`StoreTelemetry`] record a metric and its event together. [`TracedStore`] makes a span of
//! each operation of a store.

mod instrument;
pub mod metric;
mod store;
mod timer;
mod traced_store;

pub use self::{
    instrument::{Counter, Gauge, GaugeGuard, Histogram, Labels, describe, is_recorded},
    store::{Commit, Queued, StoreTelemetry},
    timer::Timer,
    traced_store::{TracedStore, store_error_type},
};

/// How an operation has ended: what its span and its metrics say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With what it was to return.
    Completed,
    /// With an error.
    Failed,
    /// Its reader dropped it before its end.
    Dropped,
}

impl Outcome {
    /// `completed`, `failed` or `dropped`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}
