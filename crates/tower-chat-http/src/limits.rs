//! Limits on the size of a request.

use axum::body::Body;
use futures_util::StreamExt;
use tower_chat_layers::Messages;
use tower_chat_wire::stream::{Limits, check_depth};

use crate::ErrorResponse;

/// Limits on the bytes, the levels of nesting, the messages, the tool calls and the tool results in
/// a request. Messages that the request repeats from the stored conversation are counted too.
///
/// Each default is at least ten times the largest value in the recorded requests and conversations
/// of the tests. The largest values are 100,641 bytes, 11 levels, 100 messages, 49 calls and 49
/// results.
///
/// ```
/// use tower_chat_http::RequestLimits;
/// let limits = RequestLimits::default().with_max_messages(500).with_max_calls(100);
/// assert_eq!(limits.max_calls, 100);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLimits {
    /// The maximum size of a body in bytes; 2 MiB by default. This limit replaces axum's
    /// `DefaultBodyLimit`.
    pub max_body_bytes: usize,
    /// The maximum number of levels of nested objects and arrays in the body; 120 by default.
    /// [`with_max_depth`](Self::with_max_depth) reduces a larger value to 120.
    pub max_depth: usize,
    /// The maximum number of messages; 20,000 by default.
    pub max_messages: usize,
    /// The maximum number of tool calls; 10,000 by default.
    pub max_calls: usize,
    /// The maximum number of tool results; 10,000 by default.
    pub max_results: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 2 * 1024 * 1024,
            max_depth: MAX_DEPTH,
            max_messages: 20_000,
            max_calls: 10_000,
            max_results: 10_000,
        }
    }
}

/// The default and the largest possible value of [`RequestLimits::max_depth`]. The value is below
/// 127, the maximum number of levels that `serde_json` parses.
const MAX_DEPTH: usize = 120;

impl RequestLimits {
    /// Sets the maximum size of a body in bytes.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets the maximum number of levels of nested objects and arrays in the JSON of a request. A
    /// value above 120 is reduced to 120.
    #[must_use]
    pub fn with_max_depth(mut self, levels: usize) -> Self {
        self.max_depth = levels.min(MAX_DEPTH);
        self
    }

    /// Sets the maximum number of messages in a request.
    #[must_use]
    pub fn with_max_messages(mut self, messages: usize) -> Self {
        self.max_messages = messages;
        self
    }

    /// Sets the maximum number of tool calls in a request.
    #[must_use]
    pub fn with_max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// Sets the maximum number of tool results in a request.
    #[must_use]
    pub fn with_max_results(mut self, results: usize) -> Self {
        self.max_results = results;
        self
    }

    /// Reads the body of a request, up to [`max_body_bytes`](Self::max_body_bytes).
    pub(crate) async fn read(&self, body: Body) -> Result<Vec<u8>, ErrorResponse> {
        let mut chunks = body.into_data_stream();
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| {
                ErrorResponse::bad_request(format!("the body could not be read: {error}"))
            })?;
            let (found, limit) = (bytes.len().saturating_add(chunk.len()), self.max_body_bytes);
            if found > limit {
                let what = "bytes or more";
                let over = RequestOverLimit { what, found, limit, setting: "max_body_bytes" };
                return Err(ErrorResponse { param: None, ..over.into() });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    pub(crate) fn check_depth(&self, body: &[u8]) -> Result<(), ErrorResponse> {
        let text = std::str::from_utf8(body).map_err(|error| {
            ErrorResponse::bad_request(format!("the body is not UTF-8: {error}"))
        })?;
        let limits = Limits::default().with_max_depth(self.max_depth);
        check_depth(text, &limits).map_err(|over| {
            let (what, found) = ("levels of nesting or more", over.max.saturating_add(1));
            let over = RequestOverLimit { what, found, limit: over.max, setting: "max_depth" };
            ErrorResponse { param: None, ..over.into() }
        })
    }

    /// Checks the numbers of messages, calls and results in a request.
    ///
    /// # Errors
    ///
    /// Fails with [`RequestOverLimit`] if one of these numbers exceeds its limit.
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

/// The error of a request that exceeds one of the [limits](RequestLimits).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has {found} {what}, and the limit is {limit}: send only the new messages; the \
     host can raise RequestLimits::{setting}"
)]
#[non_exhaustive]
pub struct RequestOverLimit {
    /// The kind of items that exceed the limit, such as `messages`.
    pub what: &'static str,
    /// The number of these items in the request. For bytes and levels of nesting, `found` is a
    /// lower bound, because counting stops when the limit is exceeded.
    pub found: usize,
    /// The limit.
    pub limit: usize,
    /// The name of the field of [`RequestLimits`] that sets the limit.
    pub setting: &'static str,
}

impl From<RequestOverLimit> for ErrorResponse {
    fn from(error: RequestOverLimit) -> Self {
        Self::new(http::StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
            .with_code("limit_exceeded")
            .with_param("messages")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of messages, calls and results are from the largest recorded conversation,
    /// because a client may send a whole conversation as one request. The bytes and levels are from
    /// the largest recorded request.
    #[test]
    fn the_default_limits_are_at_least_ten_times_the_largest_recorded_sizes() {
        let limits = RequestLimits::default();
        assert!(limits.max_body_bytes >= 10 * 100_641 && limits.max_messages >= 10 * 100);
        assert!(limits.max_calls >= 10 * 49 && limits.max_results >= 10 * 49);
        assert!(limits.max_depth >= 10 * 11);
    }
}
