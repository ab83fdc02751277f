//! Collects the output of the last replay step.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{Message, Messages};

use super::window::{Boundary, Window};

/// A message that one step passes to the next. Unchanged messages are borrowed, so that no `Arc` is
/// cloned for a message that a later step omits.
pub(super) type MessageRef<'a> = Cow<'a, Arc<Message>>;

/// The output of the steps for a sequence of messages.
///
/// All steps process a message before the next one is read, so that the history is read only once.
/// For a long history, reading costs more than the steps.
#[derive(Debug)]
pub(super) struct ReplayOutput<'a> {
    original: &'a Messages,
    messages: Vec<MessageRef<'a>>,
    boundary: Option<Boundary>,
}

impl<'a> ReplayOutput<'a> {
    pub(super) fn of(original: &'a Messages) -> Self {
        Self { original, messages: Vec::with_capacity(original.len()), boundary: None }
    }

    /// Limits the output to a window, which does not remove the first `pinned` messages.
    pub(super) fn limited_to(mut self, window: &Window, pinned: usize) -> Self {
        self.boundary = Some(Boundary::of(window).with_pinned(pinned));
        self
    }

    pub(super) fn push(&mut self, message: MessageRef<'a>) {
        if let Some(boundary) = &mut self.boundary {
            boundary.push(&message);
        }
        self.messages.push(message);
    }

    /// Returns the added messages. The original sequence is shared if they are equal.
    pub(super) fn finish(mut self) -> Messages {
        if self.is_original() {
            let original = self.original;
            return self.boundary.map_or_else(|| original.clone(), |window| window.cut(original));
        }
        if let Some(boundary) = &self.boundary {
            let begin = boundary.begin().min(self.messages.len());
            self.messages.drain(boundary.head().min(begin)..begin);
        }
        self.messages.into_iter().map(Cow::into_owned).collect()
    }

    fn is_original(&self) -> bool {
        self.messages.len() == self.original.len()
            && self.messages.iter().all(|message| matches!(message, Cow::Borrowed(_)))
    }
}

pub(super) fn after_step<'a>(
    messages: &'a Messages,
    step: impl FnMut(&'a Arc<Message>) -> Option<MessageRef<'a>>,
) -> Messages {
    let mut output = ReplayOutput::of(messages);
    messages.iter().filter_map(step).for_each(|message| output.push(message));
    output.finish()
}

pub(super) fn changed<'a>(message: Message) -> MessageRef<'a> {
    Cow::Owned(Arc::new(message))
}
