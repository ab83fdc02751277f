use std::{error::Error, time::Duration};

use tower_chat_core::BoxError;

use crate::{ProviderError, rate_limit::RateLimitExceeded};

/// An error that says whether, and when, the request that met it may be sent again.
///
/// [`ProviderError`] and [`BoxError`] are such errors. A service with an error type of its own
/// implements the trait, or is put under `map_err(BoxError::from)`.
pub trait RetryableError {
    /// Whether the same request may succeed later.
    fn is_retryable(&self) -> bool;

    /// How long the service asks to wait before the next attempt, if it says so.
    fn retry_after(&self) -> Option<Duration>;
}

impl RetryableError for ProviderError {
    fn is_retryable(&self) -> bool {
        self.is_retryable()
    }

    /// What the service says, or a [`RateLimit`](crate::rate_limit::RateLimit) beneath the client.
    fn retry_after(&self) -> Option<Duration> {
        retry_after(self)
    }
}

/// Looks for a [`ProviderError`], and for what [`tower_chat_core::is_retryable`] knows, in the error
/// and its sources. An error in which neither is found is not retried.
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

fn retry_after(error: &(dyn Error + 'static)) -> Option<Duration> {
    chain(error).find_map(|error| {
        let client = error.downcast_ref::<ProviderError>();
        let limit = error.downcast_ref::<RateLimitExceeded>();
        client.and_then(ProviderError::retry_after).or_else(|| limit.map(|limit| limit.wait))
    })
}

/// The error and its sources, from the outermost.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
