use std::{error::Error, time::Duration};

use tower_chat_core::BoxError;

use crate::{ProviderError, rate_limit::RateLimitExceeded};

/// An error that reports whether, and after which wait, the failed request may be sent again.
///
/// [`ProviderError`] and [`BoxError`] implement it. A service with its own error type implements it too,
/// or converts its errors with `map_err(BoxError::from)`.
pub trait RetryableError {
    /// Returns whether the same request may succeed later.
    fn is_retryable(&self) -> bool;

    /// Returns the wait that the service requests before the next attempt, if it requests one.
    fn retry_after(&self) -> Option<Duration>;
}

impl RetryableError for ProviderError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    /// Returns the wait that the service requests, or the time until the reset of a rate limit, if a
    /// [`RateLimit`](crate::rate_limit::RateLimit) beneath the client did not send the call.
    fn retry_after(&self) -> Option<Duration> {
        retry_after(self)
    }
}

/// Searches the error and its sources for a [`ProviderError`], and for an error that
/// [`tower_chat_core::is_retryable`] knows. If it finds neither, the request is not retried.
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

/// Returns the wait in the error or in one of its sources: that of a [`ProviderError`] or of a
/// [`RateLimitExceeded`].
fn retry_after(error: &(dyn Error + 'static)) -> Option<Duration> {
    chain(error).find_map(|error| {
        let client = error.downcast_ref::<ProviderError>();
        let limit = error.downcast_ref::<RateLimitExceeded>();
        client.and_then(ProviderError::retry_after).or_else(|| limit.map(|limit| limit.wait))
    })
}

/// Iterates over the error and its sources, beginning with the outermost.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
