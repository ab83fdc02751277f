//! The error of JSON that is not a message of a wire.
//!
//! A wire is a provider's JSON format.

use std::{error::Error, fmt};

use tower_chat_core::Retryability;

/// The error of a JSON text that is not a message of the wire.
#[derive(Debug)]
#[non_exhaustive]
pub enum WireError {
    /// The text is not valid JSON, or contains a value of a type that is not allowed at its
    /// position.
    Json {
        /// The kind of text that was read, such as `a message`.
        what: &'static str,
        /// The type of value that was expected.
        expected: &'static str,
        /// The error of the parser, with the position in the text.
        source: serde_json::Error,
    },
    /// A required field is missing, or has a value of the wrong type.
    Field {
        /// The kind of object that was read, such as `a message`.
        what: &'static str,
        /// The name of the field.
        field: &'static str,
        /// The expected value of the field.
        expected: &'static str,
    },
    /// The wire has no role with this name.
    UnknownRole {
        /// The role that was read.
        role: String,
    },
    /// One message in a list cannot be read.
    InMessage {
        /// The index of the message in the list, from 0.
        index: usize,
        /// The error of this message.
        source: Box<WireError>,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { what, expected, source } => {
                write!(f, "{what} is not {expected}: {source}")
            }
            Self::Field { what, field, expected } => {
                write!(f, "the {field} of {what} is missing, or is not {expected}")
            }
            Self::UnknownRole { role } => write!(f, "the API has no role {role:?}"),
            Self::InMessage { index, .. } => write!(f, "message {index} cannot be read"),
        }
    }
}

impl Error for WireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The text of `Json` already contains the parser's text, so that the source only
            // reports that a retry cannot succeed.
            Self::Json { .. } | Self::Field { .. } | Self::UnknownRole { .. } => {
                Some(Retryability::Permanent.as_source())
            }
            Self::InMessage { source, .. } => Some(&**source),
        }
    }
}
