//! What a step changes in a sequence of messages, and the sequence that steps work on.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{Message, Messages};

/// What a step changes: positions of messages, in order, with what comes in their place.
pub(super) type Edits = Vec<(usize, Option<Arc<Message>>)>;

/// Walks over messages and takes note of what becomes of each.
#[derive(Debug, Default)]
pub(super) struct Editor {
    position: usize,
    edits: Edits,
}

impl Editor {
    /// The next message stays.
    pub(super) fn keep(&mut self) {
        self.position += 1;
    }

    /// The next message becomes another, or disappears.
    pub(super) fn replace(&mut self, message: Option<Message>) {
        self.edits.push((self.position, message.map(Arc::new)));
        self.position += 1;
    }

    /// The next message becomes another, if there is one.
    pub(super) fn keep_or(&mut self, other: Option<Message>) {
        match other {
            Some(other) => self.replace(Some(other)),
            None => self.keep(),
        }
    }

    pub(super) fn into_edits(self) -> Edits {
        self.edits
    }
}

/// The messages on their way through the steps. As long as nothing changes they are the original
/// sequence; then the original's messages are borrowed, so that a step copies no pointer whose
/// message a later one leaves out.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    original: &'a Messages,
    changed: Option<Vec<Cow<'a, Arc<Message>>>>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(original: &'a Messages) -> Self {
        Self { original, changed: None }
    }

    /// Takes a step over the messages as they are by now.
    pub(super) fn edit(&mut self, step: impl FnOnce(Walk<'_>) -> Edits) {
        let edits = step(self.walk());
        if edits.is_empty() {
            return;
        }
        let changed =
            self.changed.get_or_insert_with(|| self.original.iter().map(Cow::Borrowed).collect());
        let mut edits = edits.into_iter().peekable();
        let mut position = 0;
        changed.retain_mut(|message| {
            let edit = edits.next_if(|(edited, _)| *edited == position);
            position += 1;
            match edit {
                None => true,
                Some((_, Some(other))) => {
                    *message = Cow::Owned(other);
                    true
                }
                Some((_, None)) => false,
            }
        });
    }

    /// Keeps the first `head` messages and those from `begin` on.
    pub(super) fn cut(&mut self, head: usize, begin: usize) {
        if begin <= head {
            return;
        }
        match &mut self.changed {
            Some(changed) => drop(changed.drain(head..begin.min(changed.len()))),
            None => {
                let head = self.original.iter().take(head);
                let kept = head.chain(self.original.iter_from(begin));
                self.changed = Some(kept.map(Cow::Borrowed).collect());
            }
        }
    }

    /// The messages as they are by now.
    pub(super) fn walk(&self) -> Walk<'_> {
        match &self.changed {
            Some(changed) => Walk::Changed(changed),
            None => Walk::Original(self.original),
        }
    }

    pub(super) fn finish(self) -> Messages {
        match self.changed {
            Some(changed) => changed.into_iter().map(Cow::into_owned).collect(),
            None => self.original.clone(),
        }
    }
}

/// The messages that a step looks at.
#[derive(Debug, Clone, Copy)]
pub(super) enum Walk<'a> {
    Original(&'a Messages),
    Changed(&'a [Cow<'a, Arc<Message>>]),
}

impl<'a> Walk<'a> {
    /// Calls a function with each message, oldest first.
    pub(super) fn for_each(self, mut each: impl FnMut(&'a Arc<Message>)) {
        match self {
            Self::Original(messages) => messages.iter().for_each(each),
            Self::Changed(messages) => messages.iter().for_each(|message| each(message)),
        }
    }
}

/// The messages after one step.
pub(super) fn edited(messages: &Messages, step: impl FnOnce(Walk<'_>) -> Edits) -> Messages {
    let mut shown = Shown::new(messages);
    shown.edit(step);
    shown.finish()
}
