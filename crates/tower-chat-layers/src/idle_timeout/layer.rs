//! The layer that limits the time without an update.

use std::time::Duration;

use tower_layer::Layer;

use super::IdleTimeout;

/// Fails a service call in which the model client sends no update within a limit.
///
/// The layer limits the time until the call returns a response, and the time between two updates of
/// a streamed answer. At the limit, the layer drops the call, which closes the connection, and
/// returns an [`IdleTimeoutExceeded`](super::IdleTimeoutExceeded). In a streamed answer, this error
/// is the last item of the stream.
///
/// The time is measured only while the caller waits for an update, so that a slow caller does not
/// cause a timeout. [`ChatPipelineBuilder::deadline`](crate::ChatPipelineBuilder::deadline) also
/// ends a call whose caller never polls. Pings of a service are not updates. To limit the time
/// between bytes, use a layer of the transport, such as tower-http's `ResponseBodyTimeoutLayer`.
///
/// The [module](super) describes the position in a stack. The timer is `tokio::time`, which needs a
/// runtime with time enabled, and can be paused in tests.
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
    /// Creates a layer with the same limit for the response and for each update.
    pub fn new(limit: Duration) -> Self {
        Self { before_head: limit, between_updates: limit }
    }

    /// Sets a separate limit for the time until the call returns a response. A response that is not
    /// streamed contains the whole answer, so this limit must cover the time of the whole answer. A
    /// streamed response is returned before the answer is complete.
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
