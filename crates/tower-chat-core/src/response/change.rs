//! The differences between the messages that are sent to a service and the stored messages.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::MessageId;

/// A difference between a request and the stored messages, which exists because the service does
/// not accept the stored form. The stored messages are not changed.
///
/// ```
/// use tower_chat_core::{Change, ChangeKind};
/// let change = Change::new(ChangeKind::Name, "the tool \"get weather\" is sent as \"get_weather_1f\"");
/// assert_eq!(change.to_string(), "the tool \"get weather\" is sent as \"get_weather_1f\"");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The id of the stored message; `None` for a message without an id, and for a tool definition.
    pub message: Option<MessageId>,
    /// The kind of content that differs.
    pub kind: ChangeKind,
    /// A description of the change, for a developer.
    pub what: String,
}

/// The kind of content that differs in a request.
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
    /// An item of another service, such as its reasoning, which is not sent.
    Native,
    /// Reasoning that the service requires, and that is sent with an empty text.
    Reasoning,
    /// The content of a tool result.
    Result,
    /// The definition of a tool.
    Definition,
    /// An option of the request that the service does not accept with these messages. The option is
    /// not sent.
    Setting,
    /// A whole message. The request omits the message, or contains the message in addition to the
    /// stored ones.
    Message,
    /// Content that the service has refused, which is replaced with a sentence.
    Refused,
}

impl Change {
    /// Creates a change of a message without an id, or of a definition.
    pub fn new(kind: ChangeKind, what: impl Into<String>) -> Self {
        Self { message: None, kind, what: what.into() }
    }

    /// Sets the stored message of the change.
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
