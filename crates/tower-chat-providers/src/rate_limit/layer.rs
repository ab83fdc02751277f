use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::Semaphore;
use tower_chat_core::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{body::RateLimitedBody, state::Limits};

/// A layer that limits the number of concurrent calls, and that delays calls while a rate limit of
/// the service is exhausted. See the [documentation of the module](crate::rate_limit).
///
/// Clones of the layer, and the services that they create, share one state.
///
/// ```
/// use std::time::Duration;
/// use tower_chat_providers::{OpenAiChat, ReqwestTransport, rate_limit::RateLimitLayer};
///
/// let limit = RateLimitLayer::new(8).max_wait(Duration::from_secs(20));
/// let client = OpenAiChat::new(ReqwestTransport::new()?).with_layer(limit);
/// # Ok::<(), tower_chat_providers::ProviderError>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer {
    shared: Arc<Shared>,
    max_wait: Duration,
}

struct Shared {
    permits: Arc<Semaphore>,
    limits: Arc<Limits>,
}

impl RateLimitLayer {
    /// Creates a layer that allows this number of concurrent calls, or one call if the number is 0.
    /// A call waits at most one minute until exhausted rate limits of the service are reset.
    pub fn new(max_concurrent: usize) -> Self {
        let permits = max_concurrent.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(permits));
        let limits = Arc::new(Limits::default());
        Self { shared: Arc::new(Shared { permits, limits }), max_wait: Duration::from_secs(60) }
    }

    /// Sets the maximum time for which a call waits until exhausted rate limits are reset. If the
    /// reset is later, the call fails immediately with
    /// [`RateLimitExceeded`](super::RateLimitExceeded). The time for which a call waits for a
    /// permit is not limited.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }
}

impl<T> Layer<T> for RateLimitLayer {
    type Service = RateLimit<T>;

    fn layer(&self, inner: T) -> RateLimit<T> {
        RateLimit { inner, layer: self.clone() }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("available_permits", &self.shared.permits.available_permits())
            .field("limits", &self.shared.limits)
            .field("max_wait", &self.max_wait)
            .finish()
    }
}

/// The service of a [`RateLimitLayer`].
#[derive(Debug, Clone)]
pub struct RateLimit<T> {
    inner: T,
    layer: RateLimitLayer,
}

impl<T> RateLimit<T> {
    tower_chat_core::__inner_service_accessors!(T);
}

impl<T, R, B> Service<Request<R>> for RateLimit<T>
where
    T: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    T::Error: Into<BoxError>,
    T::Future: Send,
    R: Send + 'static,
    B: Body,
{
    type Response = Response<RateLimitedBody<B>>;
    /// The error of the transport, or [`RateLimitExceeded`](super::RateLimitExceeded).
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    /// Returns ready when the transport is ready. A call waits in its future.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let clone = self.inner.clone();
        // The call must use the service that was polled to readiness, because a clone of this
        // service may not be ready.
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let RateLimitLayer { shared, max_wait } = self.layer.clone();
        Box::pin(async move {
            let permit = shared.permits.clone().acquire_owned().await?;
            let sent = shared.limits.admit(max_wait).await?;
            let response = inner.call(request).await.map_err(Into::into)?;
            sent.record_response(response.status(), response.headers());
            Ok(response.map(|body| RateLimitedBody::new(body, permit)))
        })
    }
}
