//! Partial responses: the text that the service has streamed before its answer was interrupted.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{ChatUpdate, Message, pairing::is_marked_ended};

/// The metadata key that marks a message as a partial response.
const INTERRUPTED: &str = "interrupted";

pub(crate) fn partial_message(text: &str) -> Message {
    let mut partial = Message::assistant(text);
    partial.metadata.insert(INTERRUPTED.to_owned(), Value::Bool(true));
    partial
}

pub(crate) fn is_marked_interrupted(message: &Message) -> bool {
    message.metadata.get(INTERRUPTED) == Some(&Value::Bool(true))
}

/// Returns whether a message is a partial response after which its run can continue. A run that was
/// stopped ends with a partial response that has the mark of the end.
pub(super) fn is_continued(message: &Message) -> bool {
    is_marked_interrupted(message) && !is_marked_ended(message)
}

/// The text of an answer that has arrived so far.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    complete_messages: String,
    /// The text of the message that is being streamed.
    current_message: String,
}

impl StreamedText {
    pub(super) fn record_update(&mut self, update: &ChatUpdate) {
        match update {
            ChatUpdate::TextDelta(delta) => self.current_message.push_str(delta),
            ChatUpdate::Message(message) => {
                self.current_message.clear();
                self.complete_messages.push_str(&message.text());
            }
            _ => {}
        }
    }

    pub(super) fn text(&self) -> Option<Arc<str>> {
        let text = format!("{}{}", self.complete_messages, self.current_message);
        (!text.is_empty()).then(|| text.into())
    }
}

/// The partial response of a journaled run: the stored text, and its next change.
#[derive(Debug, Default)]
pub(super) struct PartialText {
    stored: Option<Arc<str>>,
    /// The text with which the next write replaces `stored`. An empty text removes it.
    change: Option<Arc<str>>,
}

impl PartialText {
    pub(super) fn stored(text: Option<&Arc<str>>) -> Self {
        Self { stored: text.cloned(), change: None }
    }

    pub(super) fn replace_with(&mut self, text: Arc<str>) {
        self.change = Some(text);
    }

    /// Removes the stored text with the next write, because a message contains the text of the
    /// answer.
    pub(super) fn forget(&mut self) {
        self.change = self.stored.is_some().then(|| "".into());
    }

    /// Returns the change for the next write, and treats it as stored from now on.
    pub(super) fn take_change(&mut self) -> Option<Arc<str>> {
        let change = self.change.take()?;
        self.stored = (!change.is_empty()).then(|| change.clone());
        Some(change)
    }

    /// Returns the text after the next write.
    pub(super) fn text(&self) -> Option<Arc<str>> {
        self.change.clone().or_else(|| self.stored.clone()).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_text_that_a_write_has_stored_is_removed_by_a_later_write() {
        let mut partial = PartialText::default();
        partial.forget();
        assert_eq!(partial.take_change(), None);
        partial.replace_with("It rains".into());
        assert_eq!(partial.take_change().as_deref(), Some("It rains"));
        assert_eq!((partial.text().as_deref(), partial.take_change()), (Some("It rains"), None));
        partial.forget();
        assert_eq!(partial.text(), None);
        assert_eq!(partial.take_change().as_deref(), Some(""));
        partial.forget();
        assert_eq!(partial.take_change(), None);
    }
}
