//! Where tokens come from.

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
    /// A token that does not expire.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: Secret::new(value), expires_at: None }
    }

    /// Says when the token expires. The source is asked for the next one shortly before: a tenth of
    /// its lifetime, and at most a minute.
    #[must_use]
    pub fn expires_at(mut self, expiry: SystemTime) -> Self {
        self.expires_at = Some(expiry);
        self
    }
}

/// An asynchronous source of tokens, such as an OAuth client or a metadata server.
///
/// A function that returns a future of a [`Token`] is one.
pub trait TokenSource: Send + Sync + 'static {
    /// Obtains a token.
    ///
    /// A request calls it if no token was obtained yet, or if the last one expires shortly; at most
    /// one request at a time does. Dropping the future of a request drops this one with it.
    ///
    /// # Errors
    ///
    /// Why there is no token. All requests that wait for it fail with this error, which is taken for
    /// retryable unless it says otherwise: see [`tower_chat_core::Retryability`].
    fn token(&self) -> BoxFuture<'_, Result<Token, BoxError>>;

    /// Whether a token can become invalid before it expires, so that a request that was refused with
    /// the status 401 is sent once more with a new token. It is true unless this method says otherwise.
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
