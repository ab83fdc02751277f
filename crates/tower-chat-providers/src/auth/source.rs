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

    /// Sets the time at which the token expires. A request calls the source for a new token if less
    /// than a minute, and less than a tenth, of the token's lifetime remains.
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
    /// A request calls this method if there is no token yet, if the newest token expires shortly,
    /// or if the service has refused the newest token (see
    /// [`renews_refused_tokens`](Self::renews_refused_tokens)). Requests never call this method at
    /// the same time. If the caller drops the future of the request, the future of this method is
    /// dropped too.
    ///
    /// # Errors
    ///
    /// The reason why the source cannot return a token. Every request that waits for the token
    /// fails with this error. The error is retryable unless its
    /// [`Retryability`](tower_chat_core::Retryability) is permanent.
    fn token(&self) -> BoxFuture<'_, Result<Token, BoxError>>;

    /// Returns whether a token can become invalid before it expires. If `true`, which is the
    /// default, a request that the service refuses with the status 401 is sent a second time with a
    /// new token.
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
