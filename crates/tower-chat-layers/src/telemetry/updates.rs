//! The stream of an answer, which is polled inside the span.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tower_chat_core::{BoxError, ChatResponse, ChatUpdate};

use super::open_span::OpenSpan;

/// The updates of an answer. Each poll of the response enters the span.
pub(super) struct TracedUpdates {
    pub(super) response: ChatResponse,
    pub(super) open: OpenSpan,
}

impl Stream for TracedUpdates {
    type Item = Result<ChatUpdate, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { response, open } = &mut *self;
        let span = open.span().clone();
        let _entered = span.enter();
        let update = ready!(Pin::new(response).poll_next(cx));
        if let Some(Ok(_)) = &update {
            open.chunk();
        }
        match &update {
            Some(Ok(ChatUpdate::Message(message))) => open.message(message),
            Some(Ok(ChatUpdate::Finish(finish))) => open.finished(finish),
            Some(Err(error)) => open.failed(error),
            Some(Ok(_)) | None => {}
        }
        Poll::Ready(update)
    }
}
