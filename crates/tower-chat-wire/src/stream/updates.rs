//! Converts a stream of frames to a stream of updates.
//!
//! A frame is one event of a streamed answer, as the service sent it. An update is what the caller
//! receives: a piece of text or another part of the answer.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tower_chat_core::ChatUpdate;

use super::{Frame, ResponseAccumulator};
use crate::AnswerError;

/// Returns the updates of a streamed answer.
///
/// The returned stream yields the deltas of each frame when the frame arrives. At the end of the
/// frames, or after a frame that ends the stream, the returned stream yields the messages of the
/// answer and its finish (finish reason, usage and metadata).
///
/// If `frames` ends before the answer is complete, the stream yields [`AnswerError::Truncated`]
/// with the text that was received. If `frames` yields an error, the stream yields this error. If
/// this error is [`AnswerError::Truncated`], the stream adds the received text to the error. Errors
/// of `frames` after a complete answer are ignored. The returned stream ends after an error.
///
/// The client must convert an error of its connection to an [`AnswerError`], with
/// [`AnswerError::interrupted`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use futures_util::{StreamExt, stream};
/// use tower_chat_core::ChatResponse;
/// use tower_chat_wire::{AnswerError, body::BodyWire, stream::{Frame, updates}};
/// let line = r#"{"message":{"content":"It is."},"done":true,"done_reason":"stop"}"#;
/// let frames = stream::iter([Ok::<_, AnswerError>(Frame { event: None, data: line.to_owned() })]);
/// let updates = updates(frames, BodyWire::Ollama.accumulator());
/// let response = ChatResponse::stream(updates.map(|update| update.map_err(Into::into)));
/// assert_eq!(response.collect().await?.text(), "It is.");
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap();
/// ```
pub fn updates<S, E>(frames: S, accumulator: Box<dyn ResponseAccumulator>) -> Updates<S>
where
    S: Stream<Item = Result<Frame, E>>,
    E: Into<AnswerError>,
{
    let open_stream = OpenStream { frames: Box::pin(frames), accumulator };
    Updates { open_stream: Some(open_stream), ready: VecDeque::new() }
}

/// The stream that [`updates`] returns.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Updates<S> {
    /// The frames and the accumulator. `None` after the end of the answer.
    open_stream: Option<OpenStream<S>>,
    /// The updates that have not been yielded yet.
    ready: VecDeque<ChatUpdate>,
}

#[derive(Debug)]
struct OpenStream<S> {
    frames: Pin<Box<S>>,
    accumulator: Box<dyn ResponseAccumulator>,
}

impl<S, E> Updates<S>
where
    S: Stream<Item = Result<Frame, E>>,
    E: Into<AnswerError>,
{
    /// Passes the next frame, or `None` at the end, to the accumulator, and stores the updates.
    fn accept(&mut self, frame: Option<Result<Frame, E>>) -> Result<(), AnswerError> {
        let Some(OpenStream { accumulator, .. }) = &mut self.open_stream else { return Ok(()) };
        match frame {
            Some(Ok(frame)) => {
                self.ready.extend(accumulator.push(&frame)?);
                if accumulator.is_last() { self.end() } else { Ok(()) }
            }
            None => self.end(),
            // The answer is already complete, so the error is ignored.
            Some(Err(_)) if accumulator.is_complete() => self.end(),
            Some(Err(error)) => Err(error.into().after(|| accumulator.text())),
        }
    }

    fn end(&mut self) -> Result<(), AnswerError> {
        let Some(OpenStream { accumulator, .. }) = self.open_stream.take() else { return Ok(()) };
        if !accumulator.is_complete() {
            let reason = "its stream ended before the service reported the end of the answer";
            return Err(AnswerError::truncated(accumulator.text(), reason));
        }
        let answer = accumulator.finish()?;
        self.ready.extend(answer.messages.into_iter().map(ChatUpdate::Message));
        self.ready.push_back(ChatUpdate::Finish(answer.finish));
        Ok(())
    }
}

impl<S, E> Stream for Updates<S>
where
    S: Stream<Item = Result<Frame, E>>,
    E: Into<AnswerError>,
{
    type Item = Result<ChatUpdate, AnswerError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(update)));
            }
            let Some(OpenStream { frames, .. }) = &mut self.open_stream else {
                return Poll::Ready(None);
            };
            let frame = ready!(frames.as_mut().poll_next(cx));
            if let Err(error) = self.accept(frame) {
                self.open_stream = None;
                self.ready.clear();
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
