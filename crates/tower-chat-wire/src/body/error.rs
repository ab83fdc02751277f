//! The errors of reading and writing bodies.
//!
//! A wire is a provider's JSON format.

use std::{error::Error, fmt};

use tower_chat_core::{Retryability, SentinelAtClient};

use crate::WireError;

/// The error for a body that cannot be read as a request of the wire, or for a request that the
/// wire cannot express.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The messages in the body cannot be read.
    Messages(WireError),
    /// The body is not a JSON object, or a required field is missing or has a wrong value. Also
    /// returned for a request without a model, if the wire requires a model.
    Field {
        /// The name of the field.
        field: &'static str,
        /// The expected value of the field.
        expected: &'static str,
    },
    /// The wire cannot express the request.
    Unsupported {
        /// The part of the request that the wire does not have.
        what: &'static str,
    },
    /// The request contains only new messages, because its history owner is
    /// [`Local`](tower_chat_core::HistoryOwner::Local). A layer above the client must add the
    /// history to such a request, and no layer has added it.
    Sentinel(SentinelAtClient),
}

impl BodyError {
    /// Returns whether the same request may succeed later. Always `false`.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Messages(_)
            | Self::Field { .. }
            | Self::Unsupported { .. }
            | Self::Sentinel(_) => false,
        }
    }
}

impl From<WireError> for BodyError {
    fn from(error: WireError) -> Self {
        Self::Messages(error)
    }
}

impl From<SentinelAtClient> for BodyError {
    fn from(error: SentinelAtClient) -> Self {
        Self::Sentinel(error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(_) => f.write_str("the body has messages that cannot be read"),
            Self::Field { field, expected } => {
                write!(f, "the body's {field} is missing, or is not {expected}")
            }
            Self::Unsupported { what } => {
                write!(f, "the API has no {what}: send the request without it")
            }
            Self::Sentinel(error) => error.fmt(f),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Messages(error) => Some(error),
            Self::Field { .. } | Self::Unsupported { .. } | Self::Sentinel(_) => {
                Some(Retryability::Permanent.as_source())
            }
        }
    }
}
