//! The default transport.

use std::{
    fmt,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use reqwest::{Body, ClientBuilder, redirect};
use tower_service::Service;

use crate::error::{Errors, ProviderError};

/// HTTP by [reqwest](https://docs.rs/reqwest): the transport that clients use unless they are given
/// another.
///
/// A clone shares the connections. It decompresses nothing, unless `with_gzip` (feature `gzip`)
/// asks for it: limits on answers would otherwise count compressed bytes of layers above it. It
/// follows a redirect only to the same scheme, host and port, and only one that repeats the request
/// as it was (307, 308): a key is never sent elsewhere. It has no timeout:
/// the front page says which layers bound an answer, and a stream that stalls.
///
/// ```
/// use tower_chat_providers::ReqwestTransport;
/// let transport = ReqwestTransport::new()?;
/// # Ok::<(), tower_chat_providers::ProviderError>(())
/// ```
#[derive(Clone)]
pub struct ReqwestTransport {
    client: reqwest::Client,
}

/// The most redirects that one request follows.
const MAX_REDIRECTS: usize = 5;

impl ReqwestTransport {
    /// A transport with connections of its own.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    pub fn new() -> Result<Self, ProviderError> {
        Self::build(|builder| builder)
    }

    /// A transport that asks for answers compressed with gzip and decompresses them, with connections
    /// of its own. Limits on answers count the bytes after decompression.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    #[cfg(feature = "gzip")]
    pub fn with_gzip() -> Result<Self, ProviderError> {
        Self::build(|builder| builder.gzip(true))
    }

    /// A transport that uses a client of the caller's, with its proxies, certificates and timeouts.
    ///
    /// Redirects and decompression are then those of the client: reqwest follows redirects to other
    /// hosts and removes only `authorization` from them, not a header such as `x-api-key`.
    pub fn from_client(client: reqwest::Client) -> Self {
        Self { client }
    }

    fn build(
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, ProviderError> {
        // Another crate of the program may have turned decompression on for every client.
        let builder = reqwest::Client::builder().no_gzip().no_brotli().no_deflate().no_zstd();
        let client = configure(builder.redirect(redirect::Policy::custom(redirect))).build();
        let client = client.map_err(|error| {
            Errors("reqwest").configuration("no HTTP client can be made", error)
        })?;
        Ok(Self { client })
    }
}

/// Follows a redirect that stays where the request went and does not change it. Any other response
/// is the answer, and its status an error.
fn redirect(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let repeats_request =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let is_same_origin =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if repeats_request && is_same_origin && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

type Answer = BoxFuture<'static, Result<Response<Body>, reqwest::Error>>;

impl ReqwestTransport {
    fn send(&self, request: Request<Body>) -> Answer {
        let client = self.client.clone();
        Box::pin(async move {
            // An address may hold a password, and errors are shown.
            let request = request.try_into().map_err(reqwest::Error::without_url)?;
            let response = client.execute(request).await;
            response.map(Into::into).map_err(reqwest::Error::without_url)
        })
    }
}

impl Service<Request<Bytes>> for ReqwestTransport {
    type Response = Response<Body>;
    type Error = reqwest::Error;
    type Future = Answer;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Answer {
        self.send(request.map(Body::from))
    }
}

/// Beneath a [`FullBodyLayer`](crate::FullBodyLayer).
impl Service<Request<Full<Bytes>>> for ReqwestTransport {
    type Response = Response<Body>;
    type Error = reqwest::Error;
    type Future = Answer;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Answer {
        self.send(request.map(Body::wrap))
    }
}

impl fmt::Debug for ReqwestTransport {
    /// Leaves the client out: its default headers may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestTransport").finish_non_exhaustive()
    }
}
