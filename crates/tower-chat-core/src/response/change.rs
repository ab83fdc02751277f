//! What a request says in another form than the store has it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::MessageId;

/// A part of the conversation that a request has in another form than the store, because the service does
/// not take the stored form. Nothing that is stored changes.
///
/// ```
/// use tower_chat_core::{Change, ChangeKind};
/// let change = Change::new(ChangeKind::Name, "the tool \"get weather\" is sent as \"get_weather_1f\"");
/// assert_eq!(change.to_string(), "the tool \"get weather\" is sent as \"get_weather_1f\"");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The stored message; `None` of a message without an id, and of a definition of a tool.
    pub message: Option<MessageId>,
    /// What has another form.
    pub kind: ChangeKind,
    /// What was changed, in words for a developer.
    pub what: String,
}

/// What has another form in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The name of a tool.
    Name,
    /// The id of a call.
    CallId,
    /// The arguments of a call.
    Arguments,
    /// An image, a sound or a file.
    Media,
    /// An item of another service, such as its reasoning, which is left out.
    Native,
    /// Reasoning that the service requires, with an empty text.
    Reasoning,
    /// The content of a result.
    Result,
    /// The definition of a tool.
    Definition,
    /// A whole message, which is left out or added.
    Message,
    /// Content that the service has refused, which is replaced by a sentence.
    Refused,
}

impl Change {
    /// A change of a message without an id, or of a definition.
    pub fn new(kind: ChangeKind, what: impl Into<String>) -> Self {
        Self { message: None, kind, what: what.into() }
    }

    /// The same change in a stored message.
    #[must_use]
    pub fn of_message(self, message: Option<MessageId>) -> Self {
        Self { message, ..self }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
