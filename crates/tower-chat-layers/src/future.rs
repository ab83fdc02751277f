//! The future that all services of this crate return.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::future::BoxFuture;
use tower_chat_core::{BoxError, ChatResponse};

/// The future of a call, which resolves to a response. The updates of a streamed response are read
/// from the response.
///
/// Dropping the future cancels the call. The documentation of each layer describes which messages
/// are then stored.
pub struct ResponseFuture(BoxFuture<'static, Result<ChatResponse, BoxError>>);

impl ResponseFuture {
    pub(crate) fn new(
        future: impl Future<Output = Result<ChatResponse, BoxError>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(future))
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
