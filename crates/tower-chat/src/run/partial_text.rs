//! The text of an answer that is cut off.

use std::sync::Arc;

use tower_chat_core::ChatUpdate;

/// What was streamed so far of the text of an answer.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    /// The text of its messages that are whole.
    whole: String,
    /// The text of the message under way.
    under_way: String,
}

impl StreamedText {
    pub(super) fn came(&mut self, update: &ChatUpdate) {
        match update {
            ChatUpdate::TextDelta(delta) => self.under_way.push_str(delta),
            ChatUpdate::Message(message) => {
                self.under_way.clear();
                self.whole.push_str(&message.text());
            }
            _ => {}
        }
    }

    /// All of it; `None` if there is none.
    pub(super) fn text(&self) -> Option<Arc<str>> {
        let text = format!("{}{}", self.whole, self.under_way);
        (!text.is_empty()).then(|| text.into())
    }
}

/// The partial text that a journal keeps.
#[derive(Debug, Default)]
pub(super) struct PartialText {
    /// The store has one.
    is_stored: bool,
    /// What the next write says of it.
    change: Option<Arc<str>>,
}

impl PartialText {
    /// One that an earlier attempt may have left.
    pub(super) fn left(text: Option<&Arc<str>>) -> Self {
        Self { is_stored: text.is_some(), change: None }
    }

    pub(super) fn keep(&mut self, text: Arc<str>) {
        self.change = Some(text);
    }

    /// The call was answered: its text is part of a message.
    pub(super) fn forget(&mut self) {
        self.change = self.is_stored.then(|| "".into());
    }

    /// What a write says of it.
    pub(super) fn take_change(&mut self) -> Option<Arc<str>> {
        let change = self.change.take()?;
        self.is_stored = !change.is_empty();
        Some(change)
    }
}
