//! AWS credentials and their sources.

use std::{fmt, future::Future, time::SystemTime};

use futures_util::future::BoxFuture;
use tower_chat_core::BoxError;

use super::{cache::Expiring, secret::Secret};

/// AWS credentials: an access key id, a secret access key and, if they are temporary, a session
/// token.
#[derive(Clone)]
pub struct AwsCredentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: Secret,
    pub(super) session_token: Option<Secret>,
    pub(super) expires_at: Option<SystemTime>,
}

impl AwsCredentials {
    /// Creates credentials that do not expire.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: Secret::new(secret_access_key),
            session_token: None,
            expires_at: None,
        }
    }

    /// Adds the session token of temporary credentials.
    #[must_use]
    pub fn with_session_token(mut self, token: impl Into<String>) -> Self {
        self.session_token = Some(Secret::new(token));
        self
    }

    /// Sets the time at which the credentials expire. A request calls the source for new
    /// credentials if less than a minute, and less than a tenth, of their lifetime remains.
    #[must_use]
    pub fn expires_at(mut self, expiry: SystemTime) -> Self {
        self.expires_at = Some(expiry);
        self
    }
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCredentials")
            .field("has_session_token", &self.session_token.is_some())
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// An asynchronous source of AWS credentials, such as `aws-config`'s provider chain.
///
/// Implemented by every function that returns a future of [`AwsCredentials`].
pub trait CredentialsSource: Send + Sync + 'static {
    /// Obtains credentials. A request calls this method if there are no credentials yet, or if the
    /// newest credentials expire shortly. Requests never call this method at the same time.
    ///
    /// # Errors
    ///
    /// The reason why the source cannot return credentials.
    fn credentials(&self) -> BoxFuture<'_, Result<AwsCredentials, BoxError>>;
}

impl<F, Answer> CredentialsSource for F
where
    F: Fn() -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<AwsCredentials, BoxError>> + Send + 'static,
{
    fn credentials(&self) -> BoxFuture<'_, Result<AwsCredentials, BoxError>> {
        Box::pin(self())
    }
}

impl Expiring for AwsCredentials {
    fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }
}
