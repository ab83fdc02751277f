//! The service of the layer that limits the time without an update.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream;
use tokio::time::timeout;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse, ChatUpdate};
use tower_service::Service;

use super::{IdleTimeoutExceeded, IdleTimeoutLayer};
use crate::ResponseFuture;

/// The service that [`IdleTimeoutLayer`] creates. The time until the inner service is ready is not
/// limited.
#[derive(Debug, Clone)]
pub struct IdleTimeout<S> {
    inner: S,
    layer: IdleTimeoutLayer,
}

impl<S> IdleTimeout<S> {
    tower_chat_core::__inner_service_accessors!(S);

    pub(super) fn new(inner: S, layer: IdleTimeoutLayer) -> Self {
        Self { inner, layer }
    }
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
