//! The error for a stalled service call.

use std::time::Duration;

use tower_chat_core::Retryability;

/// The error for a service call in which the model client sent no update within the limit.
///
/// The same request may succeed if it is sent again, so [`is_retryable`](crate::is_retryable)
/// returns `Some(true)`. The store contains the same messages as after any failed service call. The
/// persistence mode defines which messages these are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} for {after:?}, and the call was cancelled: send it again",
    if *.has_begun { "the answer of the model had no update" }
    else { "the model client did not begin to answer" }
)]
#[non_exhaustive]
pub struct IdleTimeoutExceeded {
    /// The limit, which is the time for which no update arrived.
    pub after: Duration,
    /// Whether the answer had begun. An answer that is not streamed begins when it is complete.
    pub has_begun: bool,
    source: Retryability,
}

impl IdleTimeoutExceeded {
    pub(super) fn new(after: Duration, has_begun: bool) -> Self {
        Self { after, has_begun, source: Retryability::Retryable }
    }
}
