//! What is reported of a store.

use std::fmt;

use tower_chat_core::ConversationKey;

use crate::Problem;

/// Something of a store, of a conversation or of a message, in words: a problem, or a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The conversation; `None` for the store as a whole.
    pub conversation: Option<ConversationKey>,
    /// The message's number in its conversation, from 1; `None` for the conversation as a whole.
    pub message: Option<u64>,
    /// What was found, or what is done about it.
    pub what: String,
}

impl Finding {
    /// Of the store as a whole.
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

    /// The same, with what is done about it.
    #[must_use]
    pub(crate) fn and(mut self, done: &str) -> Self {
        self.what = format!("{}: {done}", self.what);
        self
    }
}

/// In one line, with its conversation and its message.
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
