//! What stores and layers tell of what they do: metrics of the facade [`metrics`](https://docs.rs/metrics)
//! and events of `tracing`.
//!
//! [`metric`] has every metric. They go to the recorder that the program has installed; where there is
//! none, nothing is measured. [`describe`] gives the recorder the units and descriptions.
//!
//! Events have the target `tower_chat::store` or `tower_chat::run` and the level `debug`; what an
//! operator should look at is `warn` or `error`, from where it happens. The functions of
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
