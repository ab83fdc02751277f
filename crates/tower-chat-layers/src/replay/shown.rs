//! Messages on their way through the steps, and what comes out.

use std::{borrow::Cow, hint::black_box, sync::Arc};

use tower_chat_core::{Message, Messages};

use super::window::{Boundary, Window};

/// A message on its way through the steps: one of the original sequence, or what a step has made of
/// it. The original's are borrowed, so that no pointer is copied whose message a later step leaves
/// out.
pub(super) type Passing<'a> = Cow<'a, Arc<Message>>;

/// What the steps let through of a sequence of messages, oldest first.
///
/// A step makes at most one message of each, and each goes through all steps before the next does:
/// on a long history the walk costs more than what is done on it.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    original: &'a Messages,
    passed: Vec<Passing<'a>>,
    boundary: Option<Boundary>,
}

impl<'a> Shown<'a> {
    pub(super) fn of(original: &'a Messages) -> Self {
        Self { original, passed: Vec::with_capacity(original.len()), boundary: None }
    }

    /// Shows only what is inside a window.
    pub(super) fn inside(mut self, window: &Window) -> Self {
        self.boundary = Some(Boundary::of(window));
        self
    }

    /// Takes the next message that has gone through all steps.
    pub(super) fn push(&mut self, message: Passing<'a>) {
        if let Some(boundary) = &mut self.boundary {
            boundary.push(&message);
        }
        self.passed.push(message);
    }

    /// The messages that were taken; if they are all of the original sequence, nothing is copied.
    pub(super) fn finish(mut self) -> Messages {
        if self.is_original() {
            let original = self.original;
            return self.boundary.map_or_else(|| original.clone(), |window| window.cut(original));
        }
        if let Some(boundary) = &self.boundary {
            let begin = boundary.begin().min(self.passed.len());
            self.passed.drain(boundary.head().min(begin)..begin);
        }
        owned(self.passed)
    }

    fn is_original(&self) -> bool {
        self.passed.len() == self.original.len()
            && self.passed.iter().all(|message| matches!(message, Cow::Borrowed(_)))
    }
}

/// The messages after one step, which is asked what becomes of each.
pub(super) fn after_step<'a>(
    messages: &'a Messages,
    step: impl FnMut(&'a Arc<Message>) -> Option<Passing<'a>>,
) -> Messages {
    let mut shown = Shown::of(messages);
    messages.walk().filter_map(step).for_each(|message| shown.push(message));
    shown.finish()
}

/// The sequence of these messages.
fn owned(passed: Vec<Passing<'_>>) -> Messages {
    const STRETCH: usize = 64;
    let mut shown = Messages::new();
    let mut passed = passed.into_iter();
    while !passed.as_slice().is_empty() {
        // One more pointer to a message is counted where the message lies, and each count waits
        // for its memory. Those of a stretch are fetched together here.
        for message in passed.as_slice().iter().take(STRETCH) {
            black_box(Arc::strong_count(message));
        }
        shown.extend(passed.by_ref().take(STRETCH).map(Cow::into_owned));
    }
    shown
}

/// What a step has made of a message, on its way to the next.
pub(super) fn changed<'a>(message: Message) -> Passing<'a> {
    Cow::Owned(Arc::new(message))
}
