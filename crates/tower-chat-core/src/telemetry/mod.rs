//! Telemetry of stores and layers: metrics of the facade [`metrics`](https://docs.rs/metrics) and
//! events of `tracing`.
//!
//! The module [`metric`] contains all metrics. The program installs a recorder for these metrics.
//! Without a recorder, nothing is measured. [`describe`] registers the units and descriptions of
//! the metrics with the recorder.
//!
//! Events have the target `tower_chat::store` or `tower_chat::run` and the level `debug`. Events
//! for operators have the level `warn` or `error` and the target of their module. The functions of
//! [`StoreTelemetry`] record a metric and its event together. [`TracedStore`] creates a span for
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

/// The outcome of an operation, as its span and its metrics report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The operation returned a result.
    Completed,
    /// The operation returned an error.
    Failed,
    /// The future or the stream of the operation was dropped before its end.
    Dropped,
}

impl Outcome {
    /// Returns `completed`, `failed` or `dropped`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}
