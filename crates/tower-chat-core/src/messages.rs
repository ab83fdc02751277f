//! A sequence of messages that is cheap to clone, extend and join.

use std::sync::Arc;

use imbl::Vector;

use crate::Message;

/// A persistent sequence of shared messages.
///
/// Cloning is O(1); [`push`](Self::push), [`append`](Self::append) and indexing are O(log n).
/// A clone shares its messages with the original and never sees later changes to it, so a request
/// can be kept, retried and extended without copying the history.
///
/// ```
/// use tower_chat_core::{Message, Messages};
/// let mut history: Messages = [Message::user("hi"), Message::assistant("hello")].into_iter().collect();
/// let snapshot = history.clone();
/// history.push(Message::user("bye"));
/// assert_eq!((snapshot.len(), history.len()), (2, 3));
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct Messages(Vector<Arc<Message>>);

impl Messages {
    /// No messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The message at a position, from 0.
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.0.get(index)
    }

    /// The newest message.
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.0.last()
    }

    /// Adds one message at the end.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        self.0.push_back(message.into());
    }

    /// Adds all messages of another sequence at the end, in O(log n) of both.
    pub fn append(&mut self, other: &Messages) {
        if self.is_empty() {
            self.0 = other.0.clone();
        } else if other.len() <= SMALL {
            self.0.extend(other.0.iter().cloned());
        } else {
            self.0.append(other.0.clone());
        }
    }

    /// The messages from a position on; empty if there are fewer.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        if count == 0 {
            return self.clone();
        }
        if count >= self.len() {
            return Self::new();
        }
        if self.len() - count <= SMALL {
            return self.iter_from(count).cloned().collect();
        }
        Self(self.0.clone().split_off(count))
    }

    /// The first `count` messages; all if there are fewer.
    #[must_use]
    pub fn take(&self, count: usize) -> Self {
        if count >= self.len() { self.clone() } else { Self(self.0.take(count)) }
    }

    /// All messages, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> + ExactSizeIterator {
        self.0.iter()
    }

    /// The messages from a position on, without walking those before it.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = &Arc<Message>> {
        let from = from.min(self.len());
        self.0.focus().narrow(from..).into_iter()
    }
}

/// Up to this many messages, copying pointers is faster than joining trees.
const SMALL: usize = 64;

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<M: Into<Arc<Message>>> FromIterator<M> for Messages {
    fn from_iter<I: IntoIterator<Item = M>>(messages: I) -> Self {
        Self(messages.into_iter().map(Into::into).collect())
    }
}

impl<M: Into<Arc<Message>>> Extend<M> for Messages {
    fn extend<I: IntoIterator<Item = M>>(&mut self, messages: I) {
        self.0.extend(messages.into_iter().map(Into::into));
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Self {
        std::iter::once(message).collect()
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        messages.into_iter().collect()
    }
}

impl<const N: usize> From<[Message; N]> for Messages {
    fn from(messages: [Message; N]) -> Self {
        messages.into_iter().collect()
    }
}
