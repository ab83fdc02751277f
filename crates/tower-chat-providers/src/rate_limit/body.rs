use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// The body of a response. Owns the permit of its call, which counts as one of the concurrent calls
/// until the body ends, fails or is dropped.
#[derive(Debug)]
pub struct RateLimitedBody<B> {
    body: Pin<Box<B>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<B> RateLimitedBody<B> {
    pub(super) fn new(body: B, permit: OwnedSemaphorePermit) -> Self {
        Self { body: Box::pin(body), permit: Some(permit) }
    }
}

impl<B: Body> Body for RateLimitedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = self.body.as_mut().poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.permit = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
