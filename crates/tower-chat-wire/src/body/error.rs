//! What can be wrong with a body.

use tower_chat_core::SentinelAtClient;

use crate::WireError;

/// A body that is no request of its wire, or a request for which the wire has no form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The messages in it cannot be read.
    #[error("the body has messages that cannot be read")]
    Messages(#[from] WireError),
    /// It is no JSON object, or a field that must be there is missing.
    #[error("the body has no {field}, or one that is not {expected}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The request asks for what the wire does not have.
    #[error("the wire has no {what}: send the request without it")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// The request carries the sentinel of a local history that nobody below keeps.
    #[error(transparent)]
    Sentinel(#[from] SentinelAtClient),
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
