//! Telemetry of stores and layers: metrics of the facade [`metrics`](https://docs.rs/metrics) and
//! events of `tracing`.
//!
//! [`metric`] has all metrics. They are recorded by the recorder that the program has installed.
//! Without a recorder, nothing is measured. [`describe`] registers the units and descriptions with
//! the recorder.
//!
//! Events have the target `tower_chat::store` or `tower_chat::run` and the level `debug`. Events
//! for operators have the level `warn` or `error` and the target of their module. The functions of
//! [`StoreTelemetry`] record a metric and its event together.

mod instrument;
pub mod metric;
mod store;
mod timer;

pub use self::{
    instrument::{Counter, Gauge, GaugeGuard, Histogram, Labels, describe, is_recorded},
    store::{Commit, Queued, StoreTelemetry},
    timer::Timer,
};
