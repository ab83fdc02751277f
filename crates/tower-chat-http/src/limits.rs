//! How much a request may hold.

use tower_chat::core::Messages;

use crate::Refusal;

/// How many messages, calls and results a request may hold. What a client repeats of its
/// conversation counts.
///
/// The defaults are at least ten times what the largest of the recorded requests holds: 100 messages,
/// 49 calls, 49 results.
///
/// ```
/// use tower_chat_http::RequestLimits;
/// let limits = RequestLimits::default().with_max_messages(500).with_max_calls(100);
/// assert_eq!(limits.max_calls, 100);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// Messages: 20,000.
    pub max_messages: usize,
    /// Tool calls: 10,000.
    pub max_calls: usize,
    /// Tool results: 10,000.
    pub max_results: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { max_messages: 20_000, max_calls: 10_000, max_results: 10_000 }
    }
}

impl RequestLimits {
    /// Sets how many messages a request may hold.
    #[must_use]
    pub fn with_max_messages(mut self, messages: usize) -> Self {
        self.max_messages = messages;
        self
    }

    /// Sets how many tool calls a request may hold.
    #[must_use]
    pub fn with_max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// Sets how many tool results a request may hold.
    #[must_use]
    pub fn with_max_results(mut self, results: usize) -> Self {
        self.max_results = results;
        self
    }

    /// Fails if the messages of a request are more than is allowed.
    ///
    /// # Errors
    ///
    /// [`RequestOverLimit`].
    pub fn check(&self, messages: &Messages) -> Result<(), RequestOverLimit> {
        let (mut calls, mut results) = (0, 0);
        for message in messages.iter() {
            calls += message.asked_calls().count();
            results += message.results().count();
        }
        let counted = [
            ("messages", messages.len(), self.max_messages, "max_messages"),
            ("tool calls", calls, self.max_calls, "max_calls"),
            ("tool results", results, self.max_results, "max_results"),
        ];
        match counted.into_iter().find(|(_, found, limit, _)| found > limit) {
            Some((what, found, limit, setting)) => {
                Err(RequestOverLimit { what, found, limit, setting })
            }
            None => Ok(()),
        }
    }
}

/// A request holds more than one of the [limits](RequestLimits) allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request holds {found} {what}, and {limit} are allowed: send what is new alone; the host \
     allows more by RequestLimits::{setting}"
)]
#[non_exhaustive]
pub struct RequestOverLimit {
    /// What there is too much of.
    pub what: &'static str,
    /// How much there is.
    pub found: usize,
    /// How much is allowed.
    pub limit: usize,
    /// The setting of [`RequestLimits`] that says so.
    pub setting: &'static str,
}

impl From<RequestOverLimit> for Refusal {
    fn from(error: RequestOverLimit) -> Self {
        Self::new(http::StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
            .with_code("limit_exceeded")
            .with_param("messages")
    }
}
