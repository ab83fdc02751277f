//! Where what the model is sent, or what is stored, differs from the recording.

use std::fmt;

use serde_json::Value;

/// One difference between a recording and what the stack made of it.
///
/// Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// The conversation's id.
    pub(crate) conversation: String,
    /// The service call of this play whose request differs, from 0 in each conversation; `None`
    /// where the stored record does.
    pub(crate) service_call: Option<usize>,
    /// The message that differs, from 0: its position in the request, or in the record.
    pub(crate) message: usize,
    /// What differs.
    pub(crate) difference: Difference,
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// A message of the recording is not there.
    Missing {
        /// The message, as JSON.
        expected: String,
    },
    /// There is a message that the recording does not have.
    Extra {
        /// The message, as JSON.
        found: String,
    },
    /// A field of the message has another value.
    Field {
        /// Which, such as `content` or `tool_calls[0].function.arguments`.
        field: String,
        /// What was recorded, as JSON; `None` if nothing was.
        expected: Option<String>,
        /// What is there, as JSON; `None` if nothing is.
        found: Option<String>,
    },
    /// The model was called more often than recorded.
    ExtraServiceCall,
    /// The run ended before all its recorded answers were asked for.
    MissingServiceCall,
    /// The tool loop ran a tool for another call than the recorded one.
    ToolCall {
        /// Name and arguments that were recorded.
        expected: String,
        /// Name and arguments that the tool was run with.
        found: String,
    },
}

impl Difference {
    /// A field with two values.
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

/// At most this many bytes of a value are printed.
const EXCERPT_BYTES: usize = 160;

/// The part of a value around the byte at which it differs.
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
