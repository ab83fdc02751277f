//! Tokens and their sources.

use std::{future::Future, time::SystemTime};

use futures_util::future::BoxFuture;
use tower_chat_core::BoxError;

use super::secret::Secret;

/// A key or a token, which may expire.
#[derive(Debug, Clone)]
pub struct Token {
    pub(super) value: Secret,
    pub(super) expires_at: Option<SystemTime>,
}

impl Token {
    /// Creates a token that does not expire.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: Secret::new(value), expires_at: None }
    }

    /// Sets the time at which the token expires. The first request that is sent shortly before this time
    /// fetches a new token from the source: when less than a tenth of the lifetime remains, and at most a
    /// minute before the token expires.
    #[must_use]
    pub fn expires_at(mut self, expiry: SystemTime) -> Self {
        self.expires_at = Some(expiry);
        self
    }
}

/// An asynchronous source of tokens, such as an OAuth client or a metadata server.
///
/// Implemented by every function that returns a future of a [`Token`].
pub trait TokenSource: Send + Sync + 'static {
    /// Obtains a token.
    ///
    /// A request calls this method if there is no token yet, if the newest one expires shortly, or if
    /// the service has refused the newest one (see
    /// [`renews_refused_tokens`](Self::renews_refused_tokens)). At most one request calls it at a time.
    /// If the caller drops the request's future, this method's future is dropped too.
    ///
    /// # Errors
    ///
    /// The reason why there is no token. Every request that waits for the token fails with this error.
    /// The error counts as retryable unless it states otherwise: see [`tower_chat_core::Retryability`].
    fn token(&self) -> BoxFuture<'_, Result<Token, BoxError>>;

    /// Returns whether a token can become invalid before it expires. If so, a request that the
    /// service has refused with the status 401 is sent once more with a new token. Returns `true`
    /// by default.
    fn renews_refused_tokens(&self) -> bool {
        true
    }
}

impl<F, Answer> TokenSource for F
where
    F: Fn() -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Token, BoxError>> + Send + 'static,
{
    fn token(&self) -> BoxFuture<'_, Result<Token, BoxError>> {
        Box::pin(self())
    }
}
