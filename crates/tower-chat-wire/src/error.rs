//! What can be wrong with JSON that should be a message.

use std::{error::Error, fmt};

use tower_chat_core::Retryability;

/// JSON that is not a message of the wire it was read as.
#[derive(Debug)]
#[non_exhaustive]
pub enum WireError {
    /// It is no JSON, or not the kind of value that belongs in this place.
    Json {
        /// What was read.
        what: &'static str,
        /// What it should be.
        expected: &'static str,
        /// Where in the text, and why.
        source: serde_json::Error,
    },
    /// A field that the wire demands is missing, or holds another kind of value.
    Field {
        /// What was read.
        what: &'static str,
        /// The field's name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The wire has no such role.
    UnknownRole {
        /// The role as it came.
        role: String,
    },
    /// One message of several is wrong.
    InMessage {
        /// Its position among them, from 0.
        index: usize,
        /// What is wrong with it.
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
                write!(f, "{what} has no {field}, or one that is not {expected}")
            }
            Self::UnknownRole { role } => write!(f, "a message of this wire has no role {role:?}"),
            Self::InMessage { index, .. } => write!(f, "message {index} cannot be read"),
        }
    }
}

impl Error for WireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The text of the cause is in the error's own.
            Self::Json { .. } | Self::Field { .. } | Self::UnknownRole { .. } => {
                Some(Retryability::Permanent.as_source())
            }
            Self::InMessage { source, .. } => Some(&**source),
        }
    }
}
