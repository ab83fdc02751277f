//! The loop's future.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use tower_chat_core::{BoxError, ChatResponse};

/// The response of a [`ToolLoopService`](super::ToolLoopService).
///
/// For a streamed request it resolves when the first service call has; for any other when the run
/// is complete. Dropping it cancels the run.
pub struct ResponseFuture(Pin<Box<dyn Future<Output = Result<ChatResponse, BoxError>> + Send>>);

impl ResponseFuture {
    pub(super) fn new(
        run: impl Future<Output = Result<ChatResponse, BoxError>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(run))
    }
}

impl Future for ResponseFuture {
    type Output = Result<ChatResponse, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}
