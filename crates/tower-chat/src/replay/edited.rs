//! A sequence of messages with some of them changed.

use std::sync::Arc;

use tower_chat_core::{Message, Messages};

/// Walks over messages and makes a new sequence of them; as long as nothing changes, it is the
/// old sequence, and no message is ever copied that stays as it is.
#[derive(Debug)]
pub(super) struct Edited<'a> {
    original: &'a Messages,
    kept: usize,
    changed: Option<Messages>,
}

impl<'a> Edited<'a> {
    pub(super) fn of(original: &'a Messages) -> Self {
        Self { original, kept: 0, changed: None }
    }

    /// The next message of the original stays.
    pub(super) fn keep(&mut self, message: &Arc<Message>) {
        match &mut self.changed {
            Some(changed) => changed.push(message.clone()),
            None => self.kept += 1,
        }
    }

    /// The next message of the original becomes another, or disappears.
    pub(super) fn replace(&mut self, message: Option<Message>) {
        let changed = self.changed.get_or_insert_with(|| self.original.take(self.kept));
        changed.extend(message);
    }

    /// The next message of the original becomes another, if there is one.
    pub(super) fn keep_or(&mut self, message: &Arc<Message>, other: Option<Message>) {
        match other {
            Some(other) => self.replace(Some(other)),
            None => self.keep(message),
        }
    }

    pub(super) fn finish(self) -> Messages {
        self.changed.unwrap_or_else(|| self.original.clone())
    }
}
