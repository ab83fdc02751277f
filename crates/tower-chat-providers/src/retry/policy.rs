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

/// Which failures of a model client are met by another attempt, and when: see the
/// module.
///
/// All clones share one retry budget, so a service that is down is not asked several times by each of
/// many callers. A call that used up its attempts, its time or the budget, or whose failure would be
/// met again, fails with its last error, unchanged.
///
/// Times are those of tokio's clock.
#[derive(Clone)]
pub struct RetryPolicy {
    max_attempts: u32,
    initial_backoff: Duration,
    max_backoff: Duration,
    max_retry_after: Duration,
    deadline: Option<Duration>,
    budget: Arc<dyn Budget + Send + Sync>,
    /// The attempts of this call that have failed. `Retry` clones the policy for each call, and the
    /// policy that it clones never counts.
    failed: u32,
    /// When this call began.
    began: Option<Instant>,
}

impl RetryPolicy {
    /// A policy with a budget of its own. At most 4 attempts; before the second one it waits up to
    /// 500 ms, and up to twice as long before each further one, never longer than 20 s; a service may
    /// ask for a wait of up to 60 s; no deadline; the budget is that of
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

    /// How often a request is sent, with the first time; 0 counts as 1.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// The longest wait before the second attempt, and the longest wait before any. Each wait is
    /// drawn at random between none and the longest for its attempt, which doubles each time.
    #[must_use]
    pub fn with_backoff(mut self, initial: Duration, max: Duration) -> Self {
        (self.initial_backoff, self.max_backoff) = (initial, max);
        self
    }

    /// The longest wait that a service may ask for. If it asks for a longer one, the call fails at
    /// once, with the error that says how long.
    #[must_use]
    pub fn with_max_retry_after(mut self, wait: Duration) -> Self {
        self.max_retry_after = wait;
        self
    }

    /// The time for all attempts of a call together, from its beginning. No attempt begins after it.
    /// One that is under way goes on: a timeout of a single attempt is a layer beneath the retry.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What limits the attempts of all calls together, those of other policies with the same budget
    /// too. A call that succeeds deposits, an attempt after a failure withdraws.
    ///
    /// The default allows one further attempt a second over the last minute, and one for each fifth
    /// call that succeeded in it.
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<dyn Budget + Send + Sync>) -> Self {
        self.budget = budget;
        self
    }

    /// How long to wait before the next attempt; `None` if the call is not attempted again.
    fn wait(&mut self, error: &impl RetryableError) -> Option<Duration> {
        self.failed = self.failed.saturating_add(1);
        if self.failed >= self.max_attempts || !error.is_retryable() {
            return None;
        }
        let wait = match error.retry_after() {
            Some(asked) if asked > self.max_retry_after => return None,
            // Never earlier than asked, and not at the same time as all others that were asked.
            Some(asked) => asked.saturating_add(jitter(self.initial_backoff)),
            None => jitter(self.backoff()),
        };
        let (began, now) = (self.began.unwrap_or_else(Instant::now), Instant::now());
        let is_late = self.deadline.is_some_and(|deadline| {
            now.saturating_duration_since(began).saturating_add(wait) >= deadline
        });
        // The budget is asked last: what it gave cannot be returned.
        (!is_late && self.budget.withdraw()).then_some(wait)
    }

    /// The longest wait after the attempts that have failed.
    fn backoff(&self) -> Duration {
        let doublings = self.failed.saturating_sub(1).min(31);
        self.initial_backoff.saturating_mul(1 << doublings).min(self.max_backoff)
    }
}

/// A random part of a time ("full jitter").
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

    /// Called for each attempt; the first one is the beginning of the call.
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
