//! The layer.

use std::time::Duration;

use tower_layer::Layer;

use super::IdleTimeoutService;

/// Gives up a call whose model client sends nothing for too long.
///
/// It bounds the time from the call to the head of the response, and in a streamed answer the time
/// between two updates; the error is an [`IdleTimeoutExceeded`](super::IdleTimeoutExceeded), in the
/// stream as its last item. The time runs only while the caller waits for the next update, so that a
/// caller who reads slowly is not mistaken for a model that stalls. A caller who never reads is bounded
/// by [`ChatPipelineBuilder::deadline`](crate::ChatPipelineBuilder::deadline), whose time runs without
/// being polled. Only updates count: a service that
/// keeps a connection open with pings, and sends no text, is silent. Limits by the byte are those of
/// the transport (tower-http's `ResponseBodyTimeoutLayer`). The call is dropped at the limit, which
/// hangs up.
///
/// See the [module](super) for its place in a stack. The timer is tokio's: it needs a runtime whose
/// time is enabled, and obeys a paused clock in tests.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tower::{Service, ServiceBuilder, ServiceExt};
/// use tower_chat::{BoxError, ChatRequest, idle_timeout::{IdleTimeout, IdleTimeoutExceeded}};
/// use tower_chat_testkit::{ScriptedModel, Step};
///
/// let stalls = ScriptedModel::new([Step::text("A coat, and").hangs_after(1)]);
/// let mut model =
///     ServiceBuilder::new().layer(IdleTimeout::new(Duration::from_secs(30))).service(stalls);
///
/// let request = ChatRequest::user("What should I wear?").streamed();
/// let error = model.ready().await?.call(request).await?.collect().await.unwrap_err();
/// let error = error.downcast_ref::<IdleTimeoutExceeded>().unwrap();
/// assert_eq!((error.after, error.has_begun), (Duration::from_secs(30), true));
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Copy)]
pub struct IdleTimeout {
    pub(super) before_head: Duration,
    pub(super) between_updates: Duration,
}

impl IdleTimeout {
    /// Bounds every wait by the same time.
    pub fn new(limit: Duration) -> Self {
        Self { before_head: limit, between_updates: limit }
    }

    /// Bounds the wait for the head by another time. An answer that is not streamed arrives with its
    /// head, so it needs as long as the model takes for all of it; a streamed one needs as long as the
    /// model thinks before its first word.
    pub fn before_head(mut self, limit: Duration) -> Self {
        self.before_head = limit;
        self
    }
}

impl<S> Layer<S> for IdleTimeout {
    type Service = IdleTimeoutService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdleTimeoutService::new(inner, *self)
    }
}
