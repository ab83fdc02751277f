//! The limits and the clock of an update log.

use std::time::{Duration, SystemTime};

use tower_chat_layers::Clock;

/// The limits, the retention time and the clock of an update log.
///
/// ```
/// use std::time::Duration;
/// use tower_chat_delivery::{MemoryUpdateLog, UpdateLogOptions};
/// let options = UpdateLogOptions::default()
///     .with_retention(Duration::from_secs(600))
///     .with_max_bytes_per_run(1024 * 1024);
/// let log = MemoryUpdateLog::with_options(options);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UpdateLogOptions {
    /// The time for which the updates of a run can be read after the end of the run.
    retention: Duration,
    pub(crate) max_runs: u64,
    pub(crate) max_updates_per_run: u64,
    pub(crate) max_bytes_per_run: u64,
    pub(crate) clock: Clock,
}

impl UpdateLogOptions {
    /// Sets the time for which updates can be read after the end of their run, 1 hour by default.
    /// If the process of a run died before the end of the run, the retention time begins when the
    /// lease of the run expires.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the largest number of runs that the log contains, 100,000 by default.
    #[must_use]
    pub fn with_max_runs(mut self, max: u64) -> Self {
        self.max_runs = max;
        self
    }

    /// Sets the largest number of updates of one run, 1,000,000 by default.
    #[must_use]
    pub fn with_max_updates_per_run(mut self, max: u64) -> Self {
        self.max_updates_per_run = max;
        self
    }

    /// Sets the largest sum of the sizes of all updates of one run, 64 MiB by default.
    #[must_use]
    pub fn with_max_bytes_per_run(mut self, max: u64) -> Self {
        self.max_bytes_per_run = max;
        self
    }

    /// Sets the clock of the retention time and of leases. A lease is the time for which a process
    /// owns a run without a renewal. The clocks of all processes that share a log must have
    /// approximately the same time.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the time of the clock, for implementations of a log.
    pub fn now(&self) -> SystemTime {
        self.clock.now()
    }

    /// Returns the current time minus the retention time, for implementations of a log. A run that
    /// ended at this time or earlier has expired.
    pub fn expired_at(&self) -> SystemTime {
        self.clock.now().checked_sub(self.retention).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl Default for UpdateLogOptions {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(60 * 60),
            max_runs: 100_000,
            max_updates_per_run: 1_000_000,
            max_bytes_per_run: 64 * 1024 * 1024,
            clock: Clock::default(),
        }
    }
}
