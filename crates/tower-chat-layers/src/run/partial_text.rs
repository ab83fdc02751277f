//! The text of an answer that is cut off.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{ChatUpdate, Message, RunId};

/// The key of a message's metadata that says it is no whole answer.
const INTERRUPTED: &str = "interrupted";

/// The text of an answer that was cut off, as a message of the history.
pub(crate) fn partial_message(text: &str) -> Message {
    let mut partial = Message::assistant(text);
    partial.metadata.insert(INTERRUPTED.to_owned(), Value::Bool(true));
    partial
}

/// Whether a message is the beginning of an answer of this run that was cut off.
pub(super) fn is_partial_response(message: &Message, run: RunId) -> bool {
    message.id.is_some_and(|id| id.run == run) && is_marked_interrupted(message)
}

/// Whether a message is the beginning of an answer that was cut off.
pub(crate) fn is_marked_interrupted(message: &Message) -> bool {
    message.metadata.get(INTERRUPTED) == Some(&Value::Bool(true))
}

/// What was streamed so far of the text of an answer.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    /// The text of its messages that are whole.
    whole: String,
    /// The text of the message under way.
    under_way: String,
}

impl StreamedText {
    pub(super) fn record_update(&mut self, update: &ChatUpdate) {
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
    /// What the store has.
    stored: Option<Arc<str>>,
    /// What the next write says of it.
    change: Option<Arc<str>>,
}

impl PartialText {
    /// One that an earlier attempt may have left.
    pub(super) fn left(text: Option<&Arc<str>>) -> Self {
        Self { stored: text.cloned(), change: None }
    }

    pub(super) fn keep(&mut self, text: Arc<str>) {
        self.change = Some(text);
    }

    /// The call was answered: its text is part of a message.
    pub(super) fn forget(&mut self) {
        self.change = self.stored.is_some().then(|| "".into());
    }

    /// What a write says of it.
    pub(super) fn take_change(&mut self) -> Option<Arc<str>> {
        let change = self.change.take()?;
        self.stored = (!change.is_empty()).then(|| change.clone());
        Some(change)
    }

    /// What is kept, stored or not.
    pub(super) fn text(&self) -> Option<Arc<str>> {
        self.change.clone().or_else(|| self.stored.clone()).filter(|text| !text.is_empty())
    }
}
