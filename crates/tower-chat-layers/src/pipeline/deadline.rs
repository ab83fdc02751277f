//! A deadline for the whole answer, to the end of its stream.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream;
use tokio::time::{Instant, timeout_at};
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

use crate::ResponseFuture;

/// The answer was not complete in time.
///
/// What is stored then is what the persistence mode states for a caller who goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was not complete after {after:?}")]
#[non_exhaustive]
pub struct DeadlineExceeded {
    /// The time it was given.
    pub after: Duration,
}

/// Bounds a whole answer. tower's own timeout bounds a streamed one only up to its head, and
/// `IdleTimeout` one service call.
#[derive(Debug, Clone)]
pub(super) struct Deadline<S> {
    inner: S,
    after: Duration,
}

impl<S> Deadline<S> {
    pub(super) fn new(inner: S, after: Duration) -> Self {
        Self { inner, after }
    }
}

impl<S> Service<ChatRequest> for Deadline<S>
where
    S: Service<ChatRequest, Response = ChatResponse, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let after = self.after;
        let head = self.inner.call(request);
        ResponseFuture::new(async move {
            let deadline = Instant::now() + after;
            let exceeded = || BoxError::from(DeadlineExceeded { after });
            let response = timeout_at(deadline, head).await.map_err(|_| exceeded())??;
            match response.try_into_answer() {
                Ok(answer) => Ok(answer.into()),
                Err(response) => Ok(bounded(response, deadline, after)),
            }
        })
    }
}

/// The response, dropped at the deadline.
fn bounded(response: ChatResponse, deadline: Instant, after: Duration) -> ChatResponse {
    ChatResponse::forward(stream::unfold(Some(response), move |response| async move {
        let mut response = response?;
        match timeout_at(deadline, response.next()).await {
            Ok(update) => update.map(|update| (update, Some(response))),
            Err(_) => Some((Err(DeadlineExceeded { after }.into()), None)),
        }
    }))
}
