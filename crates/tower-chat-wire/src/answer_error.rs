//! The errors of reading an answer.

use std::{error::Error, fmt, time::Duration};

use tower_chat_core::{BoxError, Classified, Retryability, is_retryable};

use crate::{WireError, stream::LimitExceeded};

/// The error of a response that is a refusal, cannot be read as an answer, or is an incomplete
/// answer.
///
/// A model client wraps this error in its own error type, which also has the errors of the
/// connection and of the configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnswerError {
    /// The service refused the request, with an HTTP status or with an error inside its answer.
    #[non_exhaustive]
    Refused {
        /// The HTTP status of the response. If the error is inside an answer, which has the HTTP
        /// status 200, this is the status that the error itself contains, if any.
        status: Option<u16>,
        /// The service's name for the error, such as `overloaded_error`, `RESOURCE_EXHAUSTED` or
        /// `context_length_exceeded`.
        code: Option<String>,
        /// The service's error message. If the body contains no message, the whole body.
        message: String,
        /// How long the client has to wait before the next attempt, if the body contains this time.
        /// The headers of the response are not read.
        retry_after: Option<Duration>,
        /// The error as it was received.
        body: String,
    },
    /// The answer does not have the form that the provider's API documents.
    #[non_exhaustive]
    Malformed {
        /// A description of the fault, for the error message.
        what: String,
        /// The part of the answer that is wrong, as it was received.
        body: String,
        /// The error of the parser, if the parser found the fault.
        source: Option<BoxError>,
    },
    /// The answer is larger, or nested more deeply, than the limits allow.
    Limit(LimitExceeded),
    /// A streamed answer ended before it was complete.
    #[non_exhaustive]
    Truncated {
        /// The text that was received before the stream ended.
        text: String,
        /// A description of how the stream ended, for the error message.
        reason: String,
        /// The error of the connection, if the connection failed.
        source: Option<BoxError>,
    },
}

impl AnswerError {
    /// Creates the error of a body that cannot be read.
    pub fn malformed(what: impl Into<String>, body: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), body: body.into(), source: None }
    }

    /// Creates the error of a connection that broke during a streamed answer. The `text` of the
    /// error is empty until [`updates`](crate::stream::updates) sets it to the text that was
    /// received.
    ///
    /// ```
    /// use tower_chat_wire::AnswerError;
    /// let source = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// let error = AnswerError::interrupted(source);
    /// assert!(error.is_retryable());
    /// assert!(error.to_string().contains("connection reset"));
    /// ```
    pub fn interrupted(source: impl Into<BoxError>) -> Self {
        let source = source.into();
        let reason = format!("its connection broke ({source})");
        let source = match is_retryable(&*source) {
            Some(_) => source,
            None => Classified::retryable(source).into(),
        };
        Self::Truncated { text: String::new(), reason, source: Some(source) }
    }

    /// Returns the HTTP status of a refusal. Returns `None` for other errors, and for a refusal
    /// without a status.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => *status,
            Self::Malformed { .. } | Self::Limit(_) | Self::Truncated { .. } => None,
        }
    }

    /// Returns the service's code of a refusal. Returns `None` for other errors, and for a refusal
    /// without a code.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => code.as_deref(),
            Self::Malformed { .. } | Self::Limit(_) | Self::Truncated { .. } => None,
        }
    }

    /// Returns how long the client has to wait before the next attempt, if the service has sent
    /// this time.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Malformed { .. } | Self::Limit(_) | Self::Truncated { .. } => None,
        }
    }

    /// Returns whether the same request may succeed later.
    ///
    /// `true` for truncated streams, and for refusals with the status 408, 409, 429 or 5xx. If a
    /// refusal has no status, its code decides: `false` if the code shows that the request is the
    /// cause, and `true` otherwise. The code `insufficient_quota` is never retryable, because
    /// waiting does not restore an exhausted quota.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Truncated { .. } => true,
            Self::Refused { status, code, .. } => is_refusal_retryable(*status, code.as_deref()),
            Self::Malformed { .. } | Self::Limit(_) => false,
        }
    }

    /// Sets `text` to the result of `received` if this error is [`Truncated`](Self::Truncated).
    /// Returns any other error unchanged.
    #[must_use]
    pub fn after(self, received: impl FnOnce() -> String) -> Self {
        match self {
            Self::Truncated { reason, source, .. } => {
                Self::Truncated { text: received(), reason, source }
            }
            error => error,
        }
    }

    /// Creates the error of a stream that ended too early.
    pub(crate) fn truncated(text: String, reason: impl Into<String>) -> Self {
        Self::Truncated { text, reason: reason.into(), source: None }
    }

    pub(crate) fn unreadable(source: WireError, body: impl Into<String>) -> Self {
        let what = "the assistant message in it is malformed".to_owned();
        Self::Malformed { what, body: body.into(), source: Some(source.into()) }
    }
}

impl From<LimitExceeded> for AnswerError {
    fn from(error: LimitExceeded) -> Self {
        Self::Limit(error)
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status, code, message, .. } => {
                let by = status_and_code(*status, code.as_deref());
                write!(f, "the chat service refused the request{by}: {message}")
            }
            Self::Malformed { what, .. } => {
                write!(f, "the chat service's answer cannot be read: {what}")
            }
            Self::Limit(error) => error.fmt(f),
            Self::Truncated { text, reason, .. } => {
                let length = text.len();
                write!(f, "the answer was cut off after {length} bytes of text: {reason}")
            }
        }
    }
}

impl Error for AnswerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Limit(error) => Some(error),
            Self::Malformed { source: Some(source), .. }
            | Self::Truncated { source: Some(source), .. } => Some(&**source),
            Self::Refused { .. } | Self::Malformed { .. } | Self::Truncated { .. } => {
                Some(Retryability::from_retryable(self.is_retryable()).as_source())
            }
        }
    }
}

/// Returns whether a service that refused a request may accept the same request later. A refusal
/// with the code `insufficient_quota` is never retryable. For any other refusal, the HTTP status
/// decides, or the code if there is no status.
///
/// ```
/// use tower_chat_wire::is_refusal_retryable;
/// assert!(is_refusal_retryable(Some(503), None));
/// assert!(is_refusal_retryable(None, Some("overloaded_error")));
/// assert!(!is_refusal_retryable(None, Some("invalid_request_error")));
/// assert!(!is_refusal_retryable(Some(429), Some("insufficient_quota")));
/// ```
pub fn is_refusal_retryable(status: Option<u16>, code: Option<&str>) -> bool {
    let code = code.unwrap_or_default().to_ascii_lowercase();
    match status {
        _ if code == "insufficient_quota" => false,
        Some(status) => matches!(status, 408 | 409 | 429 | 500..=599),
        None => !BLAMES_REQUEST.iter().any(|part| code.contains(part)),
    }
}

/// Parts, in lower case, of the error codes whose cause is the request itself.
const BLAMES_REQUEST: [&str; 16] = [
    "invalid",
    "not_found",
    "notfound",
    "authentication",
    "permission",
    "billing",
    "too_large",
    "validation",
    "accessdenied",
    "prohibited",
    "safety",
    "blocklist",
    "context_length",
    "content_filter",
    "policy",
    "unsupported",
];

fn status_and_code(status: Option<u16>, code: Option<&str>) -> String {
    let status = status.map(|status| format!(" with status {status}"));
    let code = code.map(|code| format!(" ({code})"));
    [status, code].into_iter().flatten().collect()
}
