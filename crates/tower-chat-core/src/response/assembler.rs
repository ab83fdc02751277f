//! Gives every leaf's stream the one shape that [`ChatResponse`](super::ChatResponse) documents.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::{Stream, stream::BoxStream};

use super::{ChatUpdate, ToolCallDelta};
use crate::{BoxError, Message, Part, Reasoning, Role, ToolCall};

/// The answer's stream ended before its end was announced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut off after {} bytes of text: its stream ended without a finish", text.len())]
#[non_exhaustive]
pub struct TruncatedStream {
    /// The text of the message that was under way.
    pub text: String,
}

impl TruncatedStream {
    /// The error of a layer whose inner response ended so, when it had nothing under way.
    #[allow(clippy::new_without_default, reason = "no error is the default")]
    pub fn new() -> Self {
        Self { text: String::new() }
    }
}

/// The message that deltas add up to so far.
#[derive(Debug, Default)]
struct Draft {
    reasoning: String,
    text: String,
    calls: Vec<ToolCall>,
}

impl Draft {
    fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }

    fn push_call(&mut self, delta: &ToolCallDelta) {
        while self.calls.len() <= delta.index {
            self.calls.push(ToolCall::without_id("", ""));
        }
        let Some(call) = self.calls.get_mut(delta.index) else { return };
        if call.id.as_deref().unwrap_or_default().is_empty() {
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
        parts.extend(self.calls.into_iter().map(Part::ToolCall));
        Message::new(Role::Assistant, parts)
    }
}

/// The most tool calls one message may be assembled of; a delta beyond it is a provider's error.
const MAX_CALLS: usize = 4096;

/// A delta names a call so far off that no answer can have that many.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer's stream names tool call number {index}, of at most {MAX_CALLS}")]
struct CallIndexTooLarge {
    index: usize,
}

/// A leaf's stream in the documented shape.
pub(super) struct Assembled {
    updates: Option<BoxStream<'static, Result<ChatUpdate, BoxError>>>,
    draft: Draft,
    ready: VecDeque<ChatUpdate>,
}

impl Assembled {
    pub(super) fn new(
        updates: impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static,
    ) -> Self {
        Self { updates: Some(Box::pin(updates)), draft: Draft::default(), ready: VecDeque::new() }
    }

    fn accept(&mut self, update: ChatUpdate) -> Result<(), BoxError> {
        match &update {
            ChatUpdate::TextDelta(text) => self.draft.text.push_str(text),
            ChatUpdate::ReasoningDelta(text) => self.draft.reasoning.push_str(text),
            ChatUpdate::ToolCallDelta(delta) if delta.index >= MAX_CALLS => {
                return Err(CallIndexTooLarge { index: delta.index }.into());
            }
            ChatUpdate::ToolCallDelta(delta) => self.draft.push_call(delta),
            ChatUpdate::Message(_) => self.draft = Draft::default(),
            ChatUpdate::Finish(_) => {
                let draft = std::mem::take(&mut self.draft);
                if !draft.is_empty() {
                    self.ready.push_back(ChatUpdate::Message(Arc::new(draft.into_message())));
                }
                self.updates = None;
            }
        }
        self.ready.push_back(update);
        Ok(())
    }
}

impl Stream for Assembled {
    type Item = Result<ChatUpdate, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(update)));
            }
            let Some(updates) = &mut self.updates else { return Poll::Ready(None) };
            let result = match ready!(updates.as_mut().poll_next(cx)) {
                Some(Ok(update)) => self.accept(update),
                Some(Err(error)) => Err(error),
                None => {
                    let text = std::mem::take(&mut self.draft.text);
                    Err(TruncatedStream { text }.into())
                }
            };
            if let Err(error) = result {
                self.updates = None;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
