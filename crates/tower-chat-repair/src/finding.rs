//! The findings that a check or a repair reports.

use std::fmt;

use tower_chat_core::ConversationKey;

use crate::Problem;

/// A description, for people, of a problem in a store and of the repair of this problem.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The conversation that has the problem. `None` if the problem concerns the whole store.
    pub conversation: Option<ConversationKey>,
    /// The number of the message that has the problem, from 1 in its conversation. `None` if the
    /// problem does not concern a single message.
    pub message: Option<u64>,
    /// The description of the problem. If the problem was repaired or can be repaired, the
    /// description of the repair follows.
    pub what: String,
}

impl Finding {
    /// Creates a finding that concerns the whole store.
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

    /// Appends the description of the repair, `done`, to that of the problem.
    #[must_use]
    pub(crate) fn with_repair(mut self, done: &str) -> Self {
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
