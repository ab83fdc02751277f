//! The differences between a recording and its play.

use std::fmt;

use serde_json::Value;

/// A difference between a recording and a play.
///
/// The `Display` text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// The id of the conversation.
    pub(crate) conversation: String,
    /// The number of the service call whose request differs, from 0 in each play of a conversation.
    /// `None` if the stored messages differ.
    pub(crate) service_call: Option<usize>,
    /// The position of the message that differs, from 0, in the request or in the stored messages.
    pub(crate) message: usize,
    pub(crate) difference: Difference,
}

/// The kinds of differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// A recorded message is missing.
    Missing {
        /// The message, as JSON.
        expected: String,
    },
    /// The request or the store contains a message that was not recorded.
    Extra {
        /// The message, as JSON.
        found: String,
    },
    /// A field of the message has another value.
    Field {
        field: String,
        /// The recorded value as JSON, if the recorded message has the field.
        expected: Option<String>,
        /// The found value as JSON, if the found message has the field.
        found: Option<String>,
    },
    /// The model was called more often than in the recording.
    ExtraServiceCall,
    /// The run ended before the model was called for all recorded answers.
    MissingServiceCall,
    /// A tool ran for another call than the recorded one.
    ToolCall {
        /// The recorded name and arguments.
        expected: String,
        /// The name and arguments with which the tool ran.
        found: String,
    },
}

impl Difference {
    /// Creates the difference of a field with two values.
    pub(super) fn field(
        field: impl Into<String>,
        expected: Option<&Value>,
        found: Option<&Value>,
    ) -> Self {
        Self::Field {
            field: field.into(),
            expected: expected.map(Value::to_string),
            found: found.map(Value::to_string),
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "divergence in conversation {:?}, ", self.conversation)?;
        match self.service_call {
            Some(call) => write!(f, "service call {call}, ")?,
            None => f.write_str("stored record, ")?,
        }
        write!(f, "message {}: {}", self.message, self.difference)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| match value {
            Some(value) => value.clone(),
            None => "nothing".to_owned(),
        };
        match self {
            Self::Missing { expected } => {
                write!(f, "it is missing: expected {}", excerpt(expected, 0))
            }
            Self::Extra { found } => write!(f, "it is extra: found {}", excerpt(found, 0)),
            Self::Field { field, expected, found } => {
                let (expected, found) = (value(expected), value(found));
                let same = expected.bytes().zip(found.bytes()).take_while(|(a, b)| a == b).count();
                let (expected, found) = (excerpt(&expected, same), excerpt(&found, same));
                write!(f, "{field} differs: expected {expected}, found {found}")
            }
            Self::ExtraServiceCall => f.write_str("the model was called once more than recorded"),
            Self::MissingServiceCall => {
                f.write_str("the run ended before this recorded answer was asked for")
            }
            Self::ToolCall { expected, found } => {
                write!(f, "a tool was run for another call: expected {expected}, found {found}")
            }
        }
    }
}

/// The maximum number of bytes of a value in a printed difference.
const EXCERPT_BYTES: usize = 160;

/// Returns the part of a value around the byte at which it differs.
fn excerpt(value: &str, differs_at: usize) -> String {
    if value.len() <= EXCERPT_BYTES {
        return value.to_owned();
    }
    let boundary =
        |at: usize| (0..=at.min(value.len())).rev().find(|&at| value.is_char_boundary(at));
    let start = boundary(differs_at.saturating_sub(EXCERPT_BYTES / 4)).unwrap_or(0);
    let end = boundary(start + EXCERPT_BYTES).unwrap_or(value.len());
    let before = if start > 0 { "..." } else { "" };
    let after = if end < value.len() { "..." } else { "" };
    format!("{before}{}{after}", value.get(start..end).unwrap_or_default())
}
