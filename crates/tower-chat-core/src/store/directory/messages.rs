//! Pages of the messages of a conversation, for callers that read the conversation backwards from
//! its end.

use std::sync::Arc;

use crate::{Message, store::History};

/// A page of consecutive visible messages of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct MessagePage {
    /// The messages with their sequence numbers, oldest first.
    pub messages: Vec<(u64, Arc<Message>)>,
    /// The argument `before` that requests the next page, which has earlier messages. `None` if
    /// this page contains the first remaining message.
    pub earlier: Option<u64>,
}

impl MessagePage {
    /// Creates a page. The messages are in order, oldest first, each with its sequence number.
    /// `earlier` is the argument `before` that requests the next page.
    pub fn new(messages: Vec<(u64, Arc<Message>)>, earlier: Option<u64>) -> Self {
        Self { messages, earlier }
    }

    /// Returns the range of sequence numbers on a page of up to `limit` messages before the number
    /// `before`: the first number, and the number after the last one. The visible messages are
    /// those from `pruned + 1` to `visible`. There are earlier messages if the first number is
    /// greater than `pruned + 1`.
    pub fn range(pruned: u64, visible: u64, before: Option<u64>, limit: usize) -> (u64, u64) {
        let first = pruned.saturating_add(1);
        let end = visible.saturating_add(1);
        let end = before.map_or(end, |before| before.min(end)).max(first);
        (end.saturating_sub(limit as u64).max(first), end)
    }

    /// Returns the page of up to `limit` messages before the number `before`, from a history in
    /// memory.
    ///
    /// ```
    /// use tower_chat_core::{Message, store::{Head, History, MessagePage, Revision}};
    /// let head = Head::new(Revision { incarnation: 7, sequence: 5 }).with_pruned(2);
    /// let history = History::new(head, ["c", "d", "e"].map(Message::user).into());
    /// let page = MessagePage::of(&history, None, 2);
    /// let texts = page.messages.iter().map(|(sequence, message)| (*sequence, message.text()));
    /// assert_eq!(texts.collect::<Vec<_>>(), [(4, "d".to_owned()), (5, "e".to_owned())]);
    /// assert_eq!(page.earlier, Some(4));
    /// assert_eq!(MessagePage::of(&history, page.earlier, 2).messages.len(), 1);
    /// ```
    pub fn of(history: &History, before: Option<u64>, limit: usize) -> Self {
        let pruned = history.head.pruned;
        let visible = pruned.saturating_add(history.messages.len() as u64);
        let (first, end) = Self::range(pruned, visible, before, limit);
        let numbered = (first..end)
            .filter_map(|sequence| Some((sequence, history.message(sequence)?.clone())));
        let earlier = (first > pruned.saturating_add(1)).then_some(first);
        Self::new(numbered.collect(), earlier)
    }
}
