//! The response of a model: one type for whole and streamed answers.

mod answer;
mod assembler;
mod change;
mod finish;
mod update;

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::{Stream, stream::BoxStream};

pub use self::{
    answer::Answer,
    assembler::TruncatedStream,
    change::{Change, ChangeKind},
    finish::{EndedBy, Finish, FinishReason, RecoveredRun, Saved, Usage},
    update::{ChatUpdate, ToolCallDelta},
};
use self::{answer::Fold, assembler::Assembled};
use crate::{BoxError, Message};

/// A model's answer: a stream of [`ChatUpdate`]s that ends with [`ChatUpdate::Finish`].
///
/// Whole and streamed answers have the same type, like HTTP bodies. Every response has the same
/// shape: for each message, the deltas and then the complete [`Message`](ChatUpdate::Message);
/// after all messages, one `Finish`; and then the end of the stream. If a model client's stream
/// ends without `Finish`, the last item is [`TruncatedStream`]: a cut-off answer is an error, never
/// a short answer.
///
/// Dropping a response cancels the remaining work.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat_core::{ChatResponse, Finish, Message};
/// let response = ChatResponse::whole([Message::assistant("hello")], Finish::stop());
/// let answer = response.collect().await?;
/// assert_eq!(answer.text(), "hello");
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
pub struct ChatResponse(Body);

enum Body {
    Whole { messages: VecDeque<Arc<Message>>, finish: Option<Box<Finish>> },
    Stream(BoxStream<'static, Result<ChatUpdate, BoxError>>),
}

impl ChatResponse {
    /// Creates the response of a complete answer, without the overhead of a stream.
    ///
    /// The final message of the model gets the [reason](Finish::reason) of the end, unless the
    /// message already has a reason.
    pub fn whole<M: Into<Arc<Message>>>(
        messages: impl IntoIterator<Item = M>,
        finish: impl Into<Box<Finish>>,
    ) -> Self {
        let Answer { messages, finish } =
            Answer::new(messages.into_iter().map(Into::into).collect(), finish);
        Self(Body::Whole { messages: messages.into(), finish: Some(finish) })
    }

    /// Creates a response from a model client's stream of updates.
    ///
    /// Deltas that are not followed by their message are assembled into a message. Updates after
    /// `Finish` are dropped. A stream that ends without `Finish` yields [`TruncatedStream`]. The
    /// stream ends after an error.
    pub fn stream(
        updates: impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static,
    ) -> Self {
        Self(Body::Stream(Box::pin(Assembled::new(updates))))
    }

    /// Creates a response from the stream of a layer that has changed another response. The stream
    /// must have the documented shape.
    ///
    /// Unlike [`stream`](Self::stream), this method adds no work for each update, because it does
    /// not check the shape. If the shape of the stream is different, the layers above do not work
    /// correctly, but no answer is lost.
    pub fn forward(
        updates: impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static,
    ) -> Self {
        Self(Body::Stream(Box::pin(updates)))
    }

    /// Returns the part of a whole answer that was not read yet.
    /// Layers use this method to process whole answers without the cost of a stream.
    ///
    /// # Errors
    ///
    /// Returns the unchanged response if it is a stream, or if it was already read to its end.
    pub fn try_into_answer(self) -> Result<Answer, Self> {
        match self.0 {
            Body::Whole { messages, finish: Some(finish) } => {
                Ok(Answer { messages: messages.into(), finish })
            }
            body => Err(Self(body)),
        }
    }

    /// Returns the next update; `None` after the end. This method is cancel safe: if the future is
    /// dropped, no update is lost.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// use tower_chat_core::{ChatResponse, ChatUpdate, Finish, Message};
    /// let mut response = ChatResponse::whole([Message::assistant("hello")], Finish::stop());
    /// while let Some(update) = response.next().await {
    ///     if let ChatUpdate::Message(message) = update? {
    ///         println!("{}", message.text());
    ///     }
    /// }
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    pub async fn next(&mut self) -> Option<Result<ChatUpdate, BoxError>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    ///
    /// Returns the error that the service or a layer reported inside the stream, or
    /// [`TruncatedStream`].
    pub async fn collect(mut self) -> Result<Answer, BoxError> {
        let mut fold = match self.try_into_answer() {
            Ok(answer) => return Ok(answer),
            Err(response) => {
                self = response;
                Fold::default()
            }
        };
        while let Some(update) = self.next().await {
            fold.push(update?);
        }
        fold.finish().ok_or_else(|| TruncatedStream::default().into())
    }
}

impl From<Answer> for ChatResponse {
    fn from(answer: Answer) -> Self {
        Self::whole(answer.messages, answer.finish)
    }
}

impl Stream for ChatResponse {
    type Item = Result<ChatUpdate, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.0 {
            Body::Whole { messages, finish } => Poll::Ready(match messages.pop_front() {
                Some(message) => Some(Ok(ChatUpdate::Message(message))),
                None => finish.take().map(|finish| Ok(ChatUpdate::Finish(finish))),
            }),
            Body::Stream(updates) => {
                let update = ready!(updates.as_mut().poll_next(cx));
                Poll::Ready(update)
            }
        }
    }
}

impl fmt::Debug for ChatResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Body::Whole { messages, finish } => f
                .debug_struct("ChatResponse")
                .field("messages", messages)
                .field("finish", finish)
                .finish(),
            Body::Stream(_) => f.write_str("ChatResponse(stream)"),
        }
    }
}
