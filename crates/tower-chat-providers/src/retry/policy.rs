use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};
use tower::{
    retry::{
        Policy,
        budget::{Budget, TpsBudget},
    },
    util::rng::{HasherRng, Rng},
};

use super::error::RetryableError;

/// A policy that decides which failed calls of a model client are retried, and how long to wait
/// before each retry. See the [documentation of the module](crate::retry).
///
/// All clones share one retry budget, so that many callers together do not overload a service that
/// is unavailable. A failed attempt is not retried if the maximum number of attempts or the
/// deadline is reached, if the budget is exhausted, or if the error is not retryable. The call then
/// returns the error of its last attempt unchanged.
///
/// Waits use tokio's clock.
#[derive(Clone)]
pub struct RetryPolicy {
    max_attempts: u32,
    initial_backoff: Duration,
    max_backoff: Duration,
    max_retry_after: Duration,
    deadline: Option<Duration>,
    budget: Arc<dyn Budget + Send + Sync>,
    /// The number of failed attempts. `Retry` clones the policy for each call.
    failed: u32,
    /// The time at which this call began.
    began: Option<Instant>,
}

impl RetryPolicy {
    /// Creates a policy with these defaults: at most 4 attempts; a wait of up to 500 ms before the
    /// second attempt, doubled for each further attempt, up to 20 s; a wait of up to 60 s if the
    /// service requests a wait; no deadline; and a separate budget with the defaults of
    /// [`with_budget`](Self::with_budget).
    pub fn new() -> Self {
        Self {
            max_attempts: 4,
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(20),
            max_retry_after: Duration::from_secs(60),
            deadline: None,
            budget: Arc::new(TpsBudget::new(Duration::from_secs(60), 1, 0.2)),
            failed: 0,
            began: None,
        }
    }

    /// Sets the maximum number of attempts, including the first. 0 has the same effect as 1.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets the maximum wait before the second attempt (`initial`). The maximum wait doubles for
    /// each further attempt, up to `max`. The wait itself is a random time between zero and this
    /// maximum.
    #[must_use]
    pub fn with_backoff(mut self, initial: Duration, max: Duration) -> Self {
        (self.initial_backoff, self.max_backoff) = (initial, max);
        self
    }

    /// Sets the maximum wait that a service may request. If the service requests a longer wait, the
    /// call fails immediately. The error contains the requested wait.
    #[must_use]
    pub fn with_max_retry_after(mut self, wait: Duration) -> Self {
        self.max_retry_after = wait;
        self
    }

    /// Sets a deadline, measured from the beginning of a call. No attempt begins after the
    /// deadline. An attempt that has begun is not interrupted. To limit the time of each attempt,
    /// add a timeout layer below the retry layer.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the budget, which limits the number of retries of all calls together, including the
    /// calls of other policies with the same budget. A successful call deposits into the budget,
    /// and each retry withdraws from it.
    ///
    /// Over the last minute, the default budget allows one retry per second, and one additional
    /// retry for every five successful calls.
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<dyn Budget + Send + Sync>) -> Self {
        self.budget = budget;
        self
    }

    /// Returns the wait before the next attempt, or `None` if the call is not retried.
    fn wait(&mut self, error: &impl RetryableError) -> Option<Duration> {
        self.failed = self.failed.saturating_add(1);
        if self.failed >= self.max_attempts || !error.is_retryable() {
            return None;
        }
        let wait = match error.retry_after() {
            Some(asked) if asked > self.max_retry_after => return None,
            // Adds a random part, so that clients that received the same wait do not retry at the
            // same time.
            Some(asked) => asked.saturating_add(jitter(self.initial_backoff)),
            None => jitter(self.backoff()),
        };
        let (began, now) = (self.began.unwrap_or_else(Instant::now), Instant::now());
        let is_late = self.deadline.is_some_and(|deadline| {
            now.saturating_duration_since(began).saturating_add(wait) >= deadline
        });
        // The budget is checked last, because a withdrawal cannot be reverted.
        (!is_late && self.budget.withdraw()).then_some(wait)
    }

    /// Returns the maximum wait before the next attempt, which doubles with each failed attempt.
    fn backoff(&self) -> Duration {
        let doublings = self.failed.saturating_sub(1).min(31);
        self.initial_backoff.saturating_mul(1 << doublings).min(self.max_backoff)
    }
}

/// Returns a random duration between zero and `max` ("full jitter").
fn jitter(max: Duration) -> Duration {
    max.mul_f64(HasherRng::new().next_f64())
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl<Req: Clone, Res, E: RetryableError> Policy<Req, Res, E> for RetryPolicy {
    type Future = RetryDelay;

    fn retry(&mut self, _request: &mut Req, result: &mut Result<Res, E>) -> Option<RetryDelay> {
        match result {
            Ok(_) => {
                self.budget.deposit();
                None
            }
            Err(error) => Some(RetryDelay(Box::pin(sleep(self.wait(error)?)))),
        }
    }

    /// Records the time of the first attempt, and clones the request. `Retry` calls this before each
    /// attempt.
    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        if self.failed == 0 {
            self.began = Some(Instant::now());
        }
        Some(request.clone())
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max_attempts", &self.max_attempts)
            .field("initial_backoff", &self.initial_backoff)
            .field("max_backoff", &self.max_backoff)
            .field("max_retry_after", &self.max_retry_after)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The wait before the next attempt.
#[derive(Debug)]
pub struct RetryDelay(Pin<Box<Sleep>>);

impl Future for RetryDelay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
