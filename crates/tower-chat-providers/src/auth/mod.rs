//! Authentication, as layers between a client and its transport.
//!
//! [`AuthLayer`] sends a key or a token in a header. `SigV4Layer` (feature `sigv4`) signs requests
//! for AWS. Both layers accept a fixed value, or an asynchronous source of values: a
//! [`TokenSource`] or a `CredentialsSource`. The layer calls the source for the first request, and
//! again shortly before the value expires. A source of tokens is also called again if the service
//! refuses a token with the status 401. If several requests need a new value at the same time, the
//! source is called once, and all of them wait for the result.
//!
//! Secrets are overwritten in memory when they are dropped, and `Debug` does not print them.
//! Headers with secrets are marked as sensitive: tower-http and hyper print `Sensitive` instead of
//! their values. If a service repeats a secret in the text of an error, the client replaces the
//! secret with `[redacted]`.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tower_chat_providers::{OpenAiChat, ReqwestTransport, auth::{AuthHeader, AuthLayer, Token}};
//!
//! // Returns a token that expires, from a metadata server, a service account or `gcloud`.
//! async fn google_token() -> Result<Token, tower_chat_core::BoxError> {
//!     let expiry = SystemTime::now() + Duration::from_secs(3600);
//!     Ok(Token::new("ya29.example").expires_at(expiry))
//! }
//!
//! let client = OpenAiChat::new(ReqwestTransport::new()?)
//!     .with_auth(AuthLayer::from_source(AuthHeader::Bearer, google_token));
//! # Ok::<(), tower_chat_providers::ProviderError>(())
//! ```

mod cache;
#[cfg(feature = "sigv4")]
mod credentials;
mod header;
mod secret;
#[cfg(feature = "sigv4")]
mod sigv4;
#[cfg_attr(
    not(feature = "sigv4"),
    allow(unreachable_pub, dead_code, reason = "the sources of AWS credentials belong to sigv4")
)]
mod source;

pub(crate) use self::secret::SentSecrets;
pub use self::{
    cache::AuthError,
    header::{Auth, AuthHeader, AuthLayer},
    source::{Token, TokenSource},
};
#[cfg(feature = "sigv4")]
pub use self::{
    credentials::{AwsCredentials, CredentialsSource},
    sigv4::{SigV4, SigV4Layer},
};
