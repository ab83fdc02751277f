//! What verify and repair print.

use serde::Serialize;
use tower_chat::ConversationKey;

use super::Problem;
use crate::report::Report;

/// A line of the report: a problem or a repair of the store, a conversation, or a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    conversation: Option<ConversationKey>,
    /// The message's number in its conversation, from 1.
    message: Option<u64>,
    what: String,
}

/// What a finding tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Problem,
    Repaired,
    /// With `--dry-run`.
    ToRepair,
    Left,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<u64>,
    what: &'a str,
}

impl Finding {
    /// Of the store as a whole.
    pub(crate) fn of_store(what: impl Into<String>) -> Self {
        Self { conversation: None, message: None, what: what.into() }
    }

    pub(crate) fn of_conversation(key: &ConversationKey, what: impl Into<String>) -> Self {
        Self { conversation: Some(key.clone()), message: None, what: what.into() }
    }

    /// The same, with what is done about it.
    #[must_use]
    pub(crate) fn and(mut self, done: &str) -> Self {
        self.what = format!("{}: {done}", self.what);
        self
    }

    pub(crate) fn of_message(key: &ConversationKey, problem: &Problem) -> Self {
        let what = problem.what.clone();
        Self { conversation: Some(key.clone()), message: Some(problem.message), what }
    }

    /// Writes it as a line, or as an object of this kind.
    pub(crate) fn write(&self, kind: Kind, report: &mut Report) {
        report.write(&self.to_line(), &self.to_json(kind));
    }

    fn to_line(&self) -> String {
        match (&self.conversation, self.message) {
            (Some(key), Some(message)) => {
                format!("conversation {key}, message {message}: {}", self.what)
            }
            (Some(key), None) => format!("conversation {key}: {}", self.what),
            (None, _) => format!("database: {}", self.what),
        }
    }

    fn to_json(&self, kind: Kind) -> JsonFinding<'_> {
        let key = self.conversation.as_ref();
        JsonFinding {
            kind,
            scope: key.map(ConversationKey::scope),
            conversation: key.map(ConversationKey::id),
            message: self.message,
            what: &self.what,
        }
    }
}
