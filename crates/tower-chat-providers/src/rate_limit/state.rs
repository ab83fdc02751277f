//! The state of the rate limits of a service.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tower_chat_core::Retryability;

use super::headers::{self, Limit};
use crate::retry_after::explicit_retry_after;

/// The error of a call that was not sent because a rate limit is exhausted for longer than the call
/// may wait.
///
/// The request may succeed after [`wait`](Self::wait).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the call was not sent: the service's limit of {limit} is exhausted for another {wait:?}, and \
     a call waits at most {max_wait:?}: send it later, or raise RateLimitLayer::max_wait"
)]
#[non_exhaustive]
pub struct RateLimitExceeded {
    /// The name of the limit, such as `requests` or `input-tokens`. If the service requested the
    /// wait with `retry-after` or `retry-after-ms`, the name is `calls`.
    pub limit: String,
    /// The time until the limit is reset.
    pub wait: Duration,
    /// The maximum time that a call may wait.
    pub max_wait: Duration,
    source: Retryability,
}

impl RateLimitExceeded {
    /// Creates the error. Other layers that apply rate limits can also return this error.
    pub fn new(limit: impl Into<String>, wait: Duration, max_wait: Duration) -> Self {
        Self { limit: limit.into(), wait, max_wait, source: Retryability::Retryable }
    }
}

/// The rate limits of a service, which all clones of a layer share.
#[derive(Debug, Default)]
pub(super) struct Limits {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The limits that have not been reset yet, by their names.
    windows: BTreeMap<String, Window>,
    /// The time before which no call may be sent, because the service has sent `retry-after`.
    blocked_until: Option<Instant>,
    /// The numbers of the calls that were sent and have not received a response yet.
    sent: BTreeSet<u64>,
    /// The number of the next call.
    next_number: u64,
}

/// A limit and the time of its reset.
#[derive(Debug)]
struct Window {
    remaining: f64,
    counts_requests: bool,
    resets_at: Instant,
}

impl Window {
    fn is_exhausted(&self) -> bool {
        self.remaining < if self.counts_requests { 1.0 } else { f64::MIN_POSITIVE }
    }
}

impl Limits {
    /// Waits until no limit is exhausted, and then records that the call is sent. Fails if the call
    /// would have to wait longer than `max_wait` in total.
    pub(super) async fn admit(
        self: &Arc<Self>,
        max_wait: Duration,
    ) -> Result<SentCall, RateLimitExceeded> {
        let began = Instant::now();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registers before the state is read, so that no later change is missed.
            changed.as_mut().enable();
            let now = Instant::now();
            let (limit, until) = match self.lock().admit(now) {
                Ok(number) => return Ok(SentCall { limits: self.clone(), number }),
                Err(exhausted) => exhausted,
            };
            if until.saturating_duration_since(began) > max_wait {
                let wait = until.saturating_duration_since(now);
                return Err(RateLimitExceeded::new(limit, wait, max_wait));
            }
            // Afterwards, the state is read again: a limit may have been reset or changed.
            let _elapsed = timeout_at(until, changed).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Records that a call is sent, and returns the number of the call. If limits are exhausted,
    /// returns the name and the reset time of the limit that is reset last, as an error.
    fn admit(&mut self, now: Instant) -> Result<u64, (String, Instant)> {
        self.windows.retain(|_, window| window.resets_at > now);
        self.blocked_until = self.blocked_until.filter(|until| *until > now);
        let exhausted = self.windows.iter().filter(|(_, window)| window.is_exhausted());
        let exhausted = exhausted.map(|(name, window)| (name.clone(), window.resets_at));
        let blocked = self.blocked_until.map(|until| ("calls".to_owned(), until));
        if let Some(last) = exhausted.chain(blocked).max_by_key(|(_, until)| *until) {
            return Err(last);
        }
        for window in self.windows.values_mut().filter(|window| window.counts_requests) {
            window.remaining -= 1.0;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.sent.insert(number);
        Ok(number)
    }

    /// Updates a limit from the response to the call with this number. The service may not have
    /// counted the later calls, so those without a response are subtracted from the remaining
    /// amount. A limit without a reset time is ignored.
    fn update(&mut self, number: u64, limit: Limit, now: Instant) {
        let Some(reset) = limit.reset else { return };
        let counts_requests = limit.counts_requests();
        let later = self.sent.range(number..).count();
        #[allow(clippy::cast_precision_loss, reason = "far fewer calls than 2^52")]
        let uncounted = if counts_requests { later as f64 } else { 0.0 };
        let resets_at = now + reset.min(LONGEST_RESET);
        let remaining = limit.remaining - uncounted;
        self.windows.insert(limit.name, Window { remaining, counts_requests, resets_at });
    }
}

/// The maximum time until a reset, because adding a longer time to an `Instant` could overflow.
const LONGEST_RESET: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A call that was sent. Until it is dropped, it counts as a call without a response.
#[derive(Debug)]
pub(super) struct SentCall {
    limits: Arc<Limits>,
    number: u64,
}

impl SentCall {
    /// Updates the limits from the response to this call.
    pub(super) fn record_response(self, status: StatusCode, headers: &HeaderMap) {
        let (now, time) = (Instant::now(), SystemTime::now());
        let asks_to_wait = matches!(status.as_u16(), 429 | 503 | 529);
        let wait = asks_to_wait.then(|| explicit_retry_after(headers, time)).flatten();
        {
            let mut state = self.limits.lock();
            state.sent.remove(&self.number);
            for limit in headers::limits(headers, time) {
                state.update(self.number, limit, now);
            }
            if let Some(wait) = wait {
                let until = now + wait.min(LONGEST_RESET);
                state.blocked_until = state.blocked_until.max(Some(until));
            }
        }
        self.limits.changed.notify_waiters();
    }
}

impl Drop for SentCall {
    fn drop(&mut self) {
        self.limits.lock().sent.remove(&self.number);
    }
}
