//! The default transport of clients.

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

/// An HTTP transport that uses [reqwest](https://docs.rs/reqwest).
///
/// - Clones share their connections.
/// - A transport requests and decompresses compressed answers only if it was created by `with_gzip`
///   (feature `gzip`).
/// - The transport follows up to 5 redirects, only to the same scheme, host and port, so that it
///   never sends a key to another server. It follows only the statuses 307 and 308, for which the
///   request is sent again unchanged.
/// - The transport has no timeout. The [documentation of the crate](crate) lists layers that limit
///   the time of an answer.
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

/// The maximum number of redirects that are followed for one request.
const MAX_REDIRECTS: usize = 5;

impl ReqwestTransport {
    /// Creates a transport with its own connection pool.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    pub fn new() -> Result<Self, ProviderError> {
        Self::build(|builder| builder)
    }

    /// Creates a transport with its own connection pool that requests answers in gzip and
    /// decompresses them. Limits on answers apply to the decompressed bytes.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    #[cfg(feature = "gzip")]
    pub fn with_gzip() -> Result<Self, ProviderError> {
        Self::build(|builder| builder.gzip(true))
    }

    /// Creates a transport that uses the application's reqwest client, with its proxies,
    /// certificates and timeouts.
    ///
    /// The settings of this client also determine redirects and decompression. By default, reqwest
    /// follows redirects to other hosts. In the redirected request, reqwest removes the header
    /// `authorization`, but not headers such as `x-api-key`.
    pub fn from_client(client: reqwest::Client) -> Self {
        Self { client }
    }

    fn build(
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, ProviderError> {
        // If another crate of the program enables reqwest's features for decompression, reqwest
        // decompresses in every client by default.
        let builder = reqwest::Client::builder().no_gzip().no_brotli().no_deflate().no_zstd();
        let client = configure(builder.redirect(redirect::Policy::custom(redirect))).build();
        let client = client.map_err(|error| {
            Errors("reqwest").configuration("creating the HTTP client failed", error)
        })?;
        Ok(Self { client })
    }
}

/// Follows a redirect to the same server if the request is sent again unchanged, up to
/// [`MAX_REDIRECTS`] times. Any other redirect is returned as the response, and the model client
/// reports its status as an error.
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
            // Errors are printed, and the URL may contain a password.
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

/// Accepts the requests of a [`FullBodyLayer`](crate::FullBodyLayer).
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
    /// Does not print the client, because its default headers may contain a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestTransport").finish_non_exhaustive()
    }
}
