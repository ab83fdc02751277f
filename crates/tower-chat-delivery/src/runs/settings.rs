//! The settings of detached runs.
//!
//! The task of a run appends the updates of the run to the update log (*the log*) in batches. The
//! task also renews a *lease* in the log: while the lease is valid, the process of the task owns
//! the run.

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The maximum time between a delta and its append to the log.
    pub(crate) batch_interval: Duration,
    /// The size of a batch, in bytes, at which the task appends the batch immediately.
    pub(crate) max_batch_bytes: usize,
    /// Whether readers receive each update only after it is stored in the log.
    pub(crate) is_durable_first: bool,
    /// The duration of a lease in the log after its last renewal.
    pub(crate) lease: Duration,
    pub(crate) max_runs: usize,
    /// The size of the updates of a run, in bytes, above which the run is stopped.
    pub(crate) max_bytes: u64,
    /// The time after which a run without a reader in its process is stopped; `None` for no limit.
    pub(crate) max_time_without_reader: Option<Duration>,
}

impl Settings {
    /// Returns the time between two renewals of a lease: a third of its duration, so that the lease
    /// does not expire if up to two consecutive renewals fail.
    pub(crate) fn renewal_interval(&self) -> Duration {
        (self.lease / 3).max(Duration::from_millis(1))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_interval: Duration::from_secs(1),
            max_batch_bytes: 16 * 1024,
            is_durable_first: false,
            lease: Duration::from_secs(15),
            max_runs: 10_000,
            max_bytes: 16 * 1024 * 1024,
            max_time_without_reader: Some(Duration::from_secs(60 * 60)),
        }
    }
}
