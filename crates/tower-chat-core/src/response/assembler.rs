//! Converts the stream of a model client into the shape that [`ChatResponse`](super::ChatResponse)
//! documents.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::{Stream, stream::BoxStream};

use super::{ChatUpdate, ToolCallDelta, answer::note_end};
use crate::{BoxError, Message, Part, Reasoning, Role, ToolCall, counted::counted};

/// The stream of an answer ended without a [`ChatUpdate::Finish`].
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error(
    "the answer is incomplete: its stream ended without a finish, after {} of text",
    counted(text.len(), "byte")
)]
#[non_exhaustive]
pub struct TruncatedStream {
    /// The text of the unfinished message.
    pub text: String,
}

/// Accumulates the deltas of the current message.
#[derive(Debug, Default)]
struct Accumulator {
    reasoning: String,
    text: String,
    calls: BTreeMap<usize, ToolCall>,
}

impl Accumulator {
    fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }

    fn push_call(&mut self, delta: &ToolCallDelta) {
        let call = self.calls.entry(delta.index).or_insert_with(|| ToolCall::without_id("", ""));
        if call.id.as_deref().unwrap_or_default().is_empty() && delta.id.is_some() {
            call.id.clone_from(&delta.id);
        }
        if let (true, Some(name)) = (call.name.is_empty(), &delta.name) {
            call.name.clone_from(name);
        }
        call.arguments.push_str(&delta.arguments);
    }

    fn into_message(self) -> Message {
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(Part::Reasoning(Reasoning::new(self.reasoning)));
        }
        if !self.text.is_empty() {
            parts.push(Part::text(self.text));
        }
        parts.extend(self.calls.into_values().map(Part::ToolCall));
        Message::new(Role::Assistant, parts)
    }
}

pub(super) struct Assembled {
    updates: Option<BoxStream<'static, Result<ChatUpdate, BoxError>>>,
    accumulator: Accumulator,
    ready: VecDeque<Result<ChatUpdate, BoxError>>,
    /// The latest messages of the model, which are not returned yet, because the last message of an
    /// answer gets the finish reason. These messages are returned when another kind of update
    /// arrives, or when the stream has no update ready.
    delayed: Vec<Arc<Message>>,
}

impl Assembled {
    pub(super) fn new(
        updates: impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static,
    ) -> Self {
        Self {
            updates: Some(Box::pin(updates)),
            accumulator: Accumulator::default(),
            ready: VecDeque::new(),
            delayed: Vec::new(),
        }
    }

    fn accept(&mut self, update: ChatUpdate) {
        match &update {
            ChatUpdate::TextDelta(text) => self.accumulator.text.push_str(text),
            ChatUpdate::ReasoningDelta(text) => self.accumulator.reasoning.push_str(text),
            ChatUpdate::ToolCallDelta(delta) => self.accumulator.push_call(delta),
            ChatUpdate::Message(_) => self.accumulator = Accumulator::default(),
            ChatUpdate::Finish(finish) => {
                let accumulator = std::mem::take(&mut self.accumulator);
                if !accumulator.is_empty() {
                    self.delayed.push(Arc::new(accumulator.into_message()));
                }
                note_end(&mut self.delayed, finish);
                self.updates = None;
            }
        }
        match update {
            ChatUpdate::Message(message) if message.role == Role::Assistant => {
                self.delayed.push(message);
            }
            update => {
                self.release();
                self.ready.push_back(Ok(update));
            }
        }
    }

    fn release(&mut self) {
        self.ready.extend(self.delayed.drain(..).map(|message| Ok(ChatUpdate::Message(message))));
    }
}

impl Stream for Assembled {
    type Item = Result<ChatUpdate, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Poll::Ready(Some(update));
            }
            let Some(updates) = &mut self.updates else { return Poll::Ready(None) };
            let update = match updates.as_mut().poll_next(cx) {
                Poll::Ready(update) => update,
                Poll::Pending if self.delayed.is_empty() => return Poll::Pending,
                Poll::Pending => {
                    self.release();
                    continue;
                }
            };
            let error = match update {
                Some(Ok(update)) => {
                    self.accept(update);
                    continue;
                }
                Some(Err(error)) => error,
                None => {
                    let text = std::mem::take(&mut self.accumulator.text);
                    TruncatedStream { text }.into()
                }
            };
            self.updates = None;
            self.release();
            self.ready.push_back(Err(error));
        }
    }
}
