//! A layer that converts requests for layers and transports that need an `http_body::Body`.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower_layer::Layer;
use tower_service::Service;

/// A layer that converts the body of requests from `Bytes` to `Full<Bytes>`.
///
/// Some layers and transports accept only requests whose body implements `http_body::Body`.
/// Examples are tower-http's `TraceLayer` and `FollowRedirectLayer`, and hyper's clients.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_chat_providers::{FullBodyLayer, OpenAiChat, ReqwestTransport};
/// use tower_http::trace::TraceLayer;
///
/// let traced = ServiceBuilder::new()
///     .layer(FullBodyLayer::new())
///     .layer(TraceLayer::new_for_http())
///     .service(ReqwestTransport::new()?);
/// let client = OpenAiChat::new(traced).with_key("sk-...")?;
/// # Ok::<(), tower_chat_providers::ProviderError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct FullBodyLayer;

impl FullBodyLayer {
    /// Creates the layer.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for FullBodyLayer {
    type Service = FullBody<S>;

    fn layer(&self, inner: S) -> FullBody<S> {
        FullBody { inner }
    }
}

/// The service of a [`FullBodyLayer`].
#[derive(Debug, Clone)]
pub struct FullBody<S> {
    inner: S,
}

impl<S> FullBody<S> {
    tower_chat_core::__inner_service_accessors!(S);
}

impl<S> Service<Request<Bytes>> for FullBody<S>
where
    S: Service<Request<Full<Bytes>>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Bytes>) -> S::Future {
        self.inner.call(request.map(Full::new))
    }
}
