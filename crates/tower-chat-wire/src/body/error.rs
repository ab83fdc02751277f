//! What can be wrong with a body.

use std::{error::Error, fmt};

use tower_chat_core::{Retryability, SentinelAtClient};

use crate::WireError;

/// A body that is no request of its wire, or a request for which the wire has no form.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The messages in it cannot be read.
    Messages(WireError),
    /// It is no JSON object, or a field that must be there is missing.
    Field {
        /// The field's name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The request asks for what the wire does not have.
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// The request carries the sentinel of a local history that nobody below keeps.
    Sentinel(SentinelAtClient),
}

impl BodyError {
    /// Whether the same request may succeed later: it may not.
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
                write!(f, "the body has no {field}, or one that is not {expected}")
            }
            Self::Unsupported { what } => {
                write!(f, "the wire has no {what}: send the request without it")
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
