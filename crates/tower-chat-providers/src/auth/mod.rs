//! Authentication, as layers between a client and its transport.
//!
//! [`AuthLayer`] sends a key or a token in a header; `SigV4Layer` (feature `sigv4`) signs requests for
//! AWS. Both accept a fixed value, or an asynchronous source: a [`TokenSource`] or a
//! `CredentialsSource`. A source is called for the first request, and again shortly before its value
//! expires. A source of tokens is also called again if the service refuses a token with the status 401.
//! Requests that need a new value at the same time wait for one call of the source.
//!
//! Secrets are wiped from memory when they are dropped, and `Debug` does not print them. The headers with
//! secrets are marked as sensitive (tower-http and hyper print `Sensitive` in their place). A service may
//! repeat a secret in the text of an error; the client replaces it with `[redacted]`.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tower_chat_providers::{OpenAiChat, ReqwestTransport, auth::{AuthHeader, AuthLayer, Token}};
//!
//! // A token that expires: of a metadata server, a service account, or `gcloud`.
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
