//! Reads the beginning of a streamed answer before the call returns a response.
//!
//! A frame is one event of the received stream. An update is a piece of text or another part of the
//! answer that the caller receives.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use tower_chat_core::{Answer, BoxError, ChatResponse, ChatUpdate};
use tower_chat_wire::{
    AnswerError,
    stream::{ResponseAccumulator, updates},
};

use crate::{
    error::ProviderError,
    exchange::ResponseContext,
    frames::{FrameError, Frames},
};

/// An answer that was read as a whole, or a stream whose first frame has been read.
pub(crate) enum StartedAnswer {
    Whole(Answer),
    Stream(StartedStream),
}

/// A streamed answer whose first frame has been read. If this frame is a refusal, the call fails.
pub(crate) struct StartedStream {
    /// The first update or the error in the first frame, if any.
    first: Option<Result<ChatUpdate, AnswerError>>,
    remaining_updates: Updates,
}

type Updates = Pin<Box<dyn Stream<Item = Result<ChatUpdate, AnswerError>> + Send>>;

/// Waits for the first frame, and reads its first update or error.
pub(crate) async fn start(
    mut frames: Frames,
    accumulator: Box<dyn ResponseAccumulator>,
) -> StartedStream {
    let first = frames.next().await;
    let frames = stream::iter(first).chain(frames);
    let frames = frames.map(|frame| frame.map_err(answer_error));
    let mut remaining_updates: Updates = Box::pin(updates(frames, accumulator));
    // Polls only once, because waiting for the next frame could take a long time.
    let first = match futures_util::poll!(remaining_updates.next()) {
        Poll::Ready(first) => first,
        Poll::Pending => None,
    };
    StartedStream { first, remaining_updates }
}

impl StartedStream {
    /// Returns the response. If the stream begins with an error, returns this error.
    pub(crate) fn into_response(
        self,
        context: ResponseContext,
    ) -> Result<ChatResponse, ProviderError> {
        let Self { first, remaining_updates } = self;
        let first = match first {
            Some(Err(error)) => return Err(context.complete(context.errors.answer_error(error))),
            Some(Ok(update)) => Some(Ok(update)),
            None => None,
        };
        let updates = stream::iter(first).chain(remaining_updates);
        Ok(ChatResponse::stream(WithProviderErrors { updates, context }))
    }
}

/// A stream of updates that converts each error to a [`ProviderError`].
struct WithProviderErrors<S> {
    updates: S,
    context: ResponseContext,
}

impl<S> Stream for WithProviderErrors<S>
where
    S: Stream<Item = Result<ChatUpdate, AnswerError>> + Unpin,
{
    type Item = Result<ChatUpdate, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let update = ready!(self.updates.poll_next_unpin(cx));
        let context = &self.context;
        let complete = |error| context.complete(context.errors.answer_error(error)).into();
        Poll::Ready(update.map(|update| update.map_err(complete)))
    }
}

fn answer_error(error: FrameError) -> AnswerError {
    match error {
        FrameError::Limit(error) => AnswerError::Limit(error),
        FrameError::Damaged(_) => AnswerError::malformed(error.to_string(), ""),
        FrameError::Broken(source) => AnswerError::interrupted(source),
    }
}
