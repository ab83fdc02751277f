//! Messages on their way through the steps, and what the steps put out.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{Message, Messages};

use super::window::{Boundary, Window};

/// A message on its way through the steps: one of the original sequence, or what a step has made of
/// it. The original's are borrowed, so that no pointer is copied whose message a later step leaves
/// out.
pub(super) type MessageRef<'a> = Cow<'a, Arc<Message>>;

/// What the steps put out of a sequence of messages, oldest first.
///
/// A step makes at most one message of each, and each goes through all steps before the next does:
/// on a long history the walk costs more than what is done on it.
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

    /// Only what is inside a window.
    pub(super) fn inside(mut self, window: &Window) -> Self {
        self.boundary = Some(Boundary::of(window));
        self
    }

    /// Takes the next message that has gone through all steps.
    pub(super) fn push(&mut self, message: MessageRef<'a>) {
        if let Some(boundary) = &mut self.boundary {
            boundary.push(&message);
        }
        self.messages.push(message);
    }

    /// The messages that were taken; if they are all of the original sequence, nothing is copied.
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

/// The messages after one step, which is asked what becomes of each.
pub(super) fn after_step<'a>(
    messages: &'a Messages,
    step: impl FnMut(&'a Arc<Message>) -> Option<MessageRef<'a>>,
) -> Messages {
    let mut output = ReplayOutput::of(messages);
    messages.iter().filter_map(step).for_each(|message| output.push(message));
    output.finish()
}

/// What a step has made of a message, on its way to the next.
pub(super) fn changed<'a>(message: Message) -> MessageRef<'a> {
    Cow::Owned(Arc::new(message))
}
