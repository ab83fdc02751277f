//! Calls a handler of a persistence layer at the end of each response, whole or streamed, and
//! delays messages until the caller may receive them.

use std::{collections::VecDeque, future::Future, sync::Arc};

use futures_util::{FutureExt, stream};
use tower_chat_core::{Answer, BoxError, ChatResponse, ChatUpdate, Message, Role, TruncatedStream};

use crate::PersistenceError;

/// Handles the end of a response for a persistence layer. A handler that is dropped before
/// [`complete`](Self::complete) or [`fail`](Self::fail) shows that the caller has disconnected.
pub(crate) trait Ending: Send + 'static {
    /// Returns whether the caller receives messages before the end of the answer.
    ///
    /// If `false`, messages wait until the whole answer is durable. If `true`, a message waits only
    /// until the next update arrives, or the response is pending. A message that may be the final
    /// one always waits for the next update, because a caller that drops the response after the
    /// final message would prevent the call of [`complete`](Self::complete).
    fn passes_messages_early(&self) -> bool;

    fn record_update(&mut self, _update: &ChatUpdate) {}

    /// Returns an error if the messages that have arrived may not be stored. The service call then
    /// fails. Called after each message with calls, and at the end of the answer.
    fn check(&self, _answer: &[Arc<Message>]) -> Result<(), BoxError> {
        Ok(())
    }

    /// Handles the complete answer. All writes are submitted before the first await.
    fn complete(
        self,
        answer: Answer,
    ) -> impl Future<Output = Result<Answer, PersistenceError>> + Send;

    fn fail(self, error: &BoxError) -> impl Future<Output = ()> + Send;
}

/// Returns the response, whose end `ending` handles before the caller receives it.
pub(crate) async fn with_ending(
    response: Result<ChatResponse, BoxError>,
    ending: impl Ending,
) -> Result<ChatResponse, BoxError> {
    let response = response.map(ChatResponse::try_into_answer).and_then(|response| {
        if let Ok(answer) = &response {
            ending.check(&answer.messages)?;
        }
        Ok(response)
    });
    match response {
        Ok(Ok(answer)) => Ok(ending.complete(answer).await?.into()),
        Ok(Err(response)) => Ok(streamed(response, ending)),
        Err(error) => {
            ending.fail(&error).await;
            Err(error)
        }
    }
}

struct Streamed<E> {
    response: ChatResponse,
    /// `None` after the handler was called.
    ending: Option<E>,
    messages: Vec<Arc<Message>>,
    released: usize,
    ready: VecDeque<ChatUpdate>,
}

fn streamed(response: ChatResponse, ending: impl Ending) -> ChatResponse {
    let state = Streamed {
        response,
        ending: Some(ending),
        messages: Vec::new(),
        released: 0,
        ready: VecDeque::new(),
    };
    ChatResponse::forward(stream::unfold(state, |mut state| async move {
        let update = state.next().await?;
        Some((update, state))
    }))
}

impl<E: Ending> Streamed<E> {
    async fn next(&mut self) -> Option<Result<ChatUpdate, BoxError>> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Some(Ok(update));
            }
            self.ending.as_ref()?;
            let update = if self.shows_at_pause() {
                let Some(update) = self.response.next().now_or_never() else {
                    self.show_messages();
                    continue;
                };
                update
            } else {
                self.response.next().await
            };
            if let (Some(Ok(update)), Some(ending)) = (&update, &mut self.ending) {
                ending.record_update(update);
            }
            match update {
                Some(Ok(ChatUpdate::Message(message))) => {
                    self.more_follows();
                    let has_calls = message.calls().next().is_some();
                    self.messages.push(message);
                    // Not only at the end of the answer, because an answer that never ends must
                    // also be refused.
                    if has_calls && let Err(error) = self.ending.as_ref()?.check(&self.messages) {
                        return self.failed(error).await;
                    }
                }
                Some(Ok(ChatUpdate::Finish(finish))) => {
                    if let Err(error) = self.ending.as_ref()?.check(&self.messages) {
                        return self.failed(error).await;
                    }
                    let messages = std::mem::take(&mut self.messages);
                    match self.ending.take()?.complete(Answer::new(messages, finish)).await {
                        Ok(answer) => {
                            self.messages = answer.messages;
                            self.show_messages();
                            self.ready.push_back(ChatUpdate::Finish(answer.finish));
                        }
                        Err(error) => return Some(Err(error.into())),
                    }
                }
                Some(Ok(delta)) => {
                    self.more_follows();
                    self.ready.push_back(delta);
                }
                Some(Err(error)) => return self.failed(error).await,
                None => return self.failed(TruncatedStream::default().into()).await,
            }
        }
    }

    fn show_messages(&mut self) {
        let unseen = self.messages.iter().skip(self.released).cloned().map(ChatUpdate::Message);
        self.ready.extend(unseen);
        self.released = self.messages.len();
    }

    /// Returns whether the newest delayed message cannot be the final one. The caller then receives
    /// it as soon as the response is pending, because tools may be running.
    fn shows_at_pause(&self) -> bool {
        let held = self.messages.get(self.released..).unwrap_or_default();
        self.passes_messages_early() && held.last().is_some_and(|message| !may_be_last(message))
    }

    fn more_follows(&mut self) {
        if self.passes_messages_early() {
            self.show_messages();
        }
    }

    fn passes_messages_early(&self) -> bool {
        self.ending.as_ref().is_some_and(Ending::passes_messages_early)
    }

    async fn failed(&mut self, error: BoxError) -> Option<Result<ChatUpdate, BoxError>> {
        self.ending.take()?.fail(&error).await;
        Some(Err(error))
    }
}

fn may_be_last(message: &Message) -> bool {
    message.role == Role::Assistant && message.calls().next().is_none()
}
