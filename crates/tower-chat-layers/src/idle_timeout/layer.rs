//! The layer that limits the time without an update, its service and its error.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream;
use tokio::time::timeout;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse, ChatUpdate, Retryability};
use tower_layer::Layer;
use tower_service::Service;

use crate::ResponseFuture;

/// Fails a service call in which the model client sends no update within a limit.
///
/// The layer limits the time until the call returns a response, and the time between two updates of
/// a streamed answer. At the limit, the layer drops the call, which closes the connection, and
/// returns an [`IdleTimeoutExceeded`]. In a streamed answer, this error is the last item of the
/// stream.
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
    before_head: Duration,
    between_updates: Duration,
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
        IdleTimeout { inner, layer: *self }
    }
}

/// The service that [`IdleTimeoutLayer`] creates. The time until the inner service is ready is not
/// limited.
#[derive(Debug, Clone)]
pub struct IdleTimeout<S> {
    inner: S,
    layer: IdleTimeoutLayer,
}

impl<S> IdleTimeout<S> {
    tower_chat_core::__inner_service_accessors!(S);
}

impl<S> Service<ChatRequest> for IdleTimeout<S>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let IdleTimeoutLayer { before_head, between_updates } = self.layer;
        let head = self.inner.call(request);
        ResponseFuture::new(async move {
            let response = timeout(before_head, head)
                .await
                .map_err(|_| IdleTimeoutExceeded::new(before_head, false))?
                .map_err(Into::into)?;
            match response.try_into_answer() {
                Ok(answer) => Ok(answer.into()),
                Err(response) => Ok(bounded(response, between_updates)),
            }
        })
    }
}

/// Limits the time until each update of a response. A response whose answer is complete, and whose
/// end is late, ends without an error.
fn bounded(response: ChatResponse, limit: Duration) -> ChatResponse {
    let unread = Some((response, false));
    ChatResponse::forward(stream::unfold(unread, move |unread| async move {
        let (mut response, is_complete) = unread?;
        match timeout(limit, response.next()).await {
            Ok(update) => {
                let update = update?;
                let is_complete = is_complete || matches!(update, Ok(ChatUpdate::Finish(_)));
                Some((update, Some((response, is_complete))))
            }
            Err(_) if is_complete => None,
            Err(_) => Some((Err(IdleTimeoutExceeded::new(limit, true).into()), None)),
        }
    }))
}

/// The error for a service call in which the model client sent no update within the limit.
///
/// The same request may succeed if it is sent again, so [`is_retryable`](crate::is_retryable)
/// returns `Some(true)`. The store contains the same messages as after any failed service call. The
/// persistence mode defines which messages these are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} for {after:?}, and the call was cancelled: send it again",
    if *.has_begun { "the answer of the model had no update" }
    else { "the model client did not begin to answer" }
)]
#[non_exhaustive]
pub struct IdleTimeoutExceeded {
    /// The limit, which is the time for which no update arrived.
    pub after: Duration,
    /// Whether the answer had begun. An answer that is not streamed begins when it is complete.
    pub has_begun: bool,
    source: Retryability,
}

impl IdleTimeoutExceeded {
    fn new(after: Duration, has_begun: bool) -> Self {
        Self { after, has_begun, source: Retryability::Retryable }
    }
}
