use std::{error::Error, time::Duration};

use tower_chat_core::BoxError;

use crate::{ProviderError, rate_limit::RateLimitExceeded};

/// An error that reports whether the failed request can be retried, and how long to wait before the
/// retry.
///
/// [`ProviderError`] and [`BoxError`] implement this trait. A service with another error type can
/// implement the trait for this type, or convert its errors with `map_err(BoxError::from)`.
pub trait RetryableError {
    /// Returns whether the same request may succeed later.
    fn is_retryable(&self) -> bool;

    /// Returns how long to wait before the next attempt, if the service has sent this time.
    fn retry_after(&self) -> Option<Duration>;
}

impl RetryableError for ProviderError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    /// Returns the wait that the service has requested. If a
    /// [`RateLimit`](crate::rate_limit::RateLimit) below the client did not send the call, returns
    /// the time until the rate limit is reset.
    fn retry_after(&self) -> Option<Duration> {
        retry_after(self)
    }
}

/// The first [`ProviderError`] among the error and its sources determines whether the request is
/// retried. Without a `ProviderError`, the request is retried only if
/// [`tower_chat_core::is_retryable`] returns `Some(true)`.
impl RetryableError for BoxError {
    fn is_retryable(&self) -> bool {
        let client = chain(&**self).find_map(|error| error.downcast_ref::<ProviderError>());
        client.map_or_else(
            || tower_chat_core::is_retryable(&**self).unwrap_or(false),
            ProviderError::is_retryable,
        )
    }

    fn retry_after(&self) -> Option<Duration> {
        retry_after(&**self)
    }
}

/// Returns the first wait in a [`ProviderError`] or [`RateLimitExceeded`] among the error and its
/// sources.
fn retry_after(error: &(dyn Error + 'static)) -> Option<Duration> {
    chain(error).find_map(|error| {
        let client = error.downcast_ref::<ProviderError>();
        let limit = error.downcast_ref::<RateLimitExceeded>();
        client.and_then(ProviderError::retry_after).or_else(|| limit.map(|limit| limit.wait))
    })
}

/// Iterates over the error and its sources, beginning with the error itself.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
