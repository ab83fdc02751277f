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

/// An HTTP transport by [reqwest](https://docs.rs/reqwest), the default transport of clients.
///
/// Clones share their connections. The transport does not request or decompress compressed answers,
/// unless it is created by `with_gzip` (feature `gzip`). The transport follows up to 5 redirects, only to
/// the same scheme, host and port, and only if the redirect repeats the request unchanged (307, 308). A
/// key is therefore never sent to another server. The transport has no timeout: the documentation of the
/// crate lists the layers that limit the time of an answer.
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

/// The largest number of redirects that one request follows.
const MAX_REDIRECTS: usize = 5;

impl ReqwestTransport {
    /// Creates a transport with its own connections.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    pub fn new() -> Result<Self, ProviderError> {
        Self::build(|builder| builder)
    }

    /// Creates a transport with its own connections that requests and decompresses gzip. Limits on
    /// answers count decompressed bytes.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    #[cfg(feature = "gzip")]
    pub fn with_gzip() -> Result<Self, ProviderError> {
        Self::build(|builder| builder.gzip(true))
    }

    /// Creates a transport that uses the application's client, with its proxies, certificates and
    /// timeouts.
    ///
    /// The client then decides about redirects and decompression. By default reqwest follows redirects to
    /// other hosts. reqwest then removes the header `authorization`, but not a header such as
    /// `x-api-key`.
    pub fn from_client(client: reqwest::Client) -> Self {
        Self { client }
    }

    fn build(
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, ProviderError> {
        // Turns decompression off: another crate of the program may have enabled reqwest's features for
        // decompression, which turn it on for every client.
        let builder = reqwest::Client::builder().no_gzip().no_brotli().no_deflate().no_zstd();
        let client = configure(builder.redirect(redirect::Policy::custom(redirect))).build();
        let client = client.map_err(|error| {
            Errors("reqwest").configuration("creating the HTTP client failed", error)
        })?;
        Ok(Self { client })
    }
}

/// Follows up to [`MAX_REDIRECTS`] redirects that go to the same server and repeat the request
/// unchanged. Any other redirect is returned as the response, and the client reports its status as an
/// error.
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
            // The address may contain a password, and errors are printed.
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

/// The implementation for a transport beneath a [`FullBodyLayer`](crate::FullBodyLayer).
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
