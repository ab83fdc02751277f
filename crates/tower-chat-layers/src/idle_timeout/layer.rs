//! The layer that limits silence.

use std::time::Duration;

use tower_layer::Layer;

use super::IdleTimeout;

/// Fails a call whose model client sends nothing for too long.
///
/// The layer limits the time from the call to the head of the response, and in a streamed answer the
/// time between two updates. The error is an [`IdleTimeoutExceeded`](super::IdleTimeoutExceeded), which
/// is the last item of a stream. The time is only measured while the caller waits for the next update,
/// because a slow caller is not a stalled model. For a caller that never reads, use
/// [`ChatPipelineBuilder::deadline`](crate::ChatPipelineBuilder::deadline), whose time does not depend
/// on polls. Only updates count: a service that only sends pings is silent. The transport can limit the
/// time between bytes (tower-http's `ResponseBodyTimeoutLayer`). At the limit the call is dropped,
/// which closes the connection.
///
/// The [module](super) describes the position in a stack. The timer is tokio's, which needs a runtime
/// with time enabled, and follows a paused clock in tests.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tower::{Service, ServiceBuilder, ServiceExt};
/// use tower_chat::{BoxError, ChatRequest, error::IdleTimeoutExceeded, layer::IdleTimeoutLayer};
/// use tower_chat_testkit::{ScriptedModel, Step};
///
/// let stalls = ScriptedModel::new([Step::text("A coat, and").hangs_after(1)]);
/// let mut model =
///     ServiceBuilder::new().layer(IdleTimeoutLayer::new(Duration::from_secs(30))).service(stalls);
///
/// let request = ChatRequest::user("What should I wear?").streamed();
/// let error = model.ready().await?.call(request).await?.collect().await.unwrap_err();
/// let error = error.downcast_ref::<IdleTimeoutExceeded>().unwrap();
/// assert_eq!((error.after, error.has_begun), (Duration::from_secs(30), true));
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Copy)]
pub struct IdleTimeoutLayer {
    pub(super) before_head: Duration,
    pub(super) between_updates: Duration,
}

impl IdleTimeoutLayer {
    /// Creates a layer with the same limit for every wait.
    pub fn new(limit: Duration) -> Self {
        Self { before_head: limit, between_updates: limit }
    }

    /// Sets another limit for the wait for the head. An answer that is not streamed arrives with its
    /// head, so the limit must cover the whole answer. For a streamed answer, the limit must cover the
    /// time until the first update.
    pub fn before_head(mut self, limit: Duration) -> Self {
        self.before_head = limit;
        self
    }
}

impl<S> Layer<S> for IdleTimeoutLayer {
    type Service = IdleTimeout<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdleTimeout::new(inner, *self)
    }
}
