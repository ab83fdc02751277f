//! Retries of requests to a server that may be unreachable for a while.

use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry::StoreTelemetry;

/// The pause before the first repetition. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Repeats a failed request, with growing pauses, until a time limit has passed.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::{io, time::Duration};
/// use tower_chat_core::store::author::Retry;
/// let mut attempts = 0;
/// let answer = Retry::new(Duration::from_secs(1)).run(
///     || {
///         attempts += 1;
///         std::future::ready(if attempts < 3 { Err(io::ErrorKind::NotConnected) } else { Ok("pong") })
///     },
///     |failure| *failure == io::ErrorKind::NotConnected,
/// );
/// assert_eq!(answer.await, Ok("pong"));
/// # });
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    limit: Duration,
    telemetry: Option<StoreTelemetry>,
}

impl Retry {
    /// Creates a retry with this time limit. The time is measured from the first failure, so that a
    /// request is repeated even if its first attempt takes longer than the limit.
    pub fn new(limit: Duration) -> Self {
        Self { limit, telemetry: None }
    }

    /// Sets the telemetry that counts every retry.
    #[must_use]
    pub fn with_telemetry(mut self, telemetry: StoreTelemetry) -> Self {
        self.telemetry = Some(telemetry);
        self
    }

    /// Makes attempts until one succeeds, `may_repeat` returns false for a failure, or the next
    /// pause would end after the time limit.
    ///
    /// # Errors
    ///
    /// The failure of the final attempt.
    pub async fn run<Answer, Failure, Attempt>(
        self,
        mut attempt: impl FnMut() -> Attempt,
        mut may_repeat: impl FnMut(&Failure) -> bool,
    ) -> Result<Answer, Failure>
    where
        Attempt: Future<Output = Result<Answer, Failure>>,
    {
        let mut first_failure = None;
        let mut pause = FIRST_PAUSE;
        let mut repetitions = 0;
        loop {
            let failure = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let waited = first_failure.get_or_insert_with(Instant::now).elapsed();
            if waited.saturating_add(pause) > self.limit || !may_repeat(&failure) {
                return Err(failure);
            }
            repetitions += 1;
            if let Some(telemetry) = self.telemetry {
                telemetry.retried(repetitions, pause);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
