//! The findings that a check or a repair reports.

use std::fmt;

use tower_chat_core::ConversationKey;

use crate::Problem;

/// A problem of a store, of a conversation or of a message, or a repair of it, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The conversation; `None` for the store as a whole.
    pub conversation: Option<ConversationKey>,
    /// The message's number in its conversation, from 1; `None` for the conversation as a whole.
    pub message: Option<u64>,
    /// The problem, followed by its repair if there is one.
    pub what: String,
}

impl Finding {
    /// Returns a finding that concerns the whole store.
    pub(crate) fn of_store(what: impl Into<String>) -> Self {
        Self { conversation: None, message: None, what: what.into() }
    }

    pub(crate) fn of_conversation(key: &ConversationKey, what: impl Into<String>) -> Self {
        Self { conversation: Some(key.clone()), message: None, what: what.into() }
    }

    pub(crate) fn of_message(key: &ConversationKey, problem: &Problem) -> Self {
        let what = problem.what.clone();
        Self { conversation: Some(key.clone()), message: Some(problem.message), what }
    }

    /// Appends the repair to the text of the problem.
    #[must_use]
    pub(crate) fn and(mut self, done: &str) -> Self {
        self.what = format!("{}: {done}", self.what);
        self
    }
}

/// Formats the finding in one line, with its conversation and its message.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conversation, message, what } = self;
        match (conversation, message) {
            (Some(key), Some(message)) => {
                write!(f, "conversation {key}, message {message}: {what}")
            }
            (Some(key), None) => write!(f, "conversation {key}: {what}"),
            (None, _) => write!(f, "database: {what}"),
        }
    }
}
