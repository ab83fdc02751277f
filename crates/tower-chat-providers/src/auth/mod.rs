//! Authentication, as layers between a client and its transport.
//!
//! [`AuthLayer`] sends a key or a token in a header, and with the feature `sigv4` `SigV4Layer` signs
//! requests for AWS. Both take what they send from a string or from an asynchronous source: a
//! [`TokenSource`] or a `CredentialsSource`, which is asked once, and again shortly before what it gave expires. Requests
//! that need a new token at the same time wait for one call of the source.
//!
//! Secrets are wiped from memory when they are dropped. They are never in `Debug`, the headers that
//! carry them are marked as sensitive (tower-http and hyper show such values as `Sensitive`), and a
//! client replaces them in the texts of a service's errors, which may repeat them.
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
