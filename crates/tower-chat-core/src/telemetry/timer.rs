//! A timer of operations.

use std::time::{Duration, Instant};

use super::{Histogram, Labels, is_recorded};

/// The time since the start of an operation, if a recorder is installed.
///
/// ```
/// use tower_chat_core::telemetry::{Timer, metric};
/// let timer = Timer::start();
/// // ... the operation ...
/// timer.record(metric::STORE_OPERATION_DURATION, &[("db.operation.name", Some("load"))]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Timer(Option<Instant>);

impl Timer {
    /// Starts the timer. Without a recorder, this function does not read the clock.
    pub fn start() -> Self {
        Self(is_recorded().then(Instant::now))
    }

    /// Returns the time since the start; `None` without a recorder.
    pub fn elapsed(self) -> Option<Duration> {
        self.0.map(|started| started.elapsed())
    }

    /// Records the time since the start, in seconds.
    pub fn record(self, histogram: Histogram, labels: Labels<'_>) {
        if let Some(elapsed) = self.elapsed() {
            histogram.record(elapsed.as_secs_f64(), labels);
        }
    }
}
