//! The error of a stalled model client.

use std::time::Duration;

use tower_chat_core::Retryability;

/// The error for a model client that sent nothing for too long.
///
/// The same request may succeed: [`is_retryable`](crate::is_retryable) returns `Some(true)`. The stored
/// messages are those that the persistence mode defines for a failed service call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} for {after:?}, and the call was cancelled: send it again",
    if *.has_begun { "the answer of the model had no update" }
    else { "the model client did not begin to answer" }
)]
#[non_exhaustive]
pub struct IdleTimeoutExceeded {
    /// The time without an update.
    pub after: Duration,
    /// Whether the answer had begun. A whole answer begins when it is complete.
    pub has_begun: bool,
    source: Retryability,
}

impl IdleTimeoutExceeded {
    pub(super) fn new(after: Duration, has_begun: bool) -> Self {
        Self { after, has_begun, source: Retryability::Retryable }
    }
}
