//! The errors of reading an answer.

use std::{error::Error, fmt, time::Duration};

use tower_chat_core::{BoxError, Classified, Retryability, is_retryable};

use crate::{WireError, stream::LimitExceeded};

/// The error of a response that is a refusal, cannot be read as an answer, or is an incomplete answer.
///
/// A client that reads answers wraps this error in its own error type, which also has the errors of the
/// connection and of the configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnswerError {
    /// The service refused the request, with an HTTP status or with an error inside its answer.
    #[non_exhaustive]
    Refused {
        /// The HTTP status. For an error inside an answer: the status that the error names, if there is
        /// one.
        status: Option<u16>,
        /// The service's name for the error, such as `overloaded_error`, `RESOURCE_EXHAUSTED` or
        /// `context_length_exceeded`.
        code: Option<String>,
        /// The service's message, or the whole body if it has another form.
        message: String,
        /// The wait before the next attempt that the service requests, if the body contains this time.
        /// The client reads the headers.
        retry_after: Option<Duration>,
        /// The error as it was received.
        body: String,
    },
    /// The answer does not have the form that the provider's API documents.
    #[non_exhaustive]
    Malformed {
        /// The fault of the answer.
        what: String,
        /// The part of the answer that is wrong, as it was received.
        body: String,
        /// The error of the parser that reported it, if there is one.
        source: Option<BoxError>,
    },
    /// The answer is larger, or nested more deeply, than the limits allow.
    Limit(LimitExceeded),
    /// A streamed answer ended before it was complete.
    #[non_exhaustive]
    Truncated {
        /// The text that had been received.
        text: String,
        /// The way in which the stream ended.
        reason: String,
        /// The error of the connection, if it reported one.
        source: Option<BoxError>,
    },
}

impl AnswerError {
    /// Creates the error of a body that cannot be read.
    pub fn malformed(what: impl Into<String>, body: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), body: body.into(), source: None }
    }

    /// Creates the error of a connection that broke during a streamed answer. The error has no text:
    /// [`updates`](crate::stream::updates) adds the text that was received.
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

    /// Returns the HTTP status of a refusal. `None` for other errors, and for a refusal without a status.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => *status,
            Self::Malformed { .. } | Self::Limit(_) | Self::Truncated { .. } => None,
        }
    }

    /// Returns the service's code of a refusal. `None` for other errors, and for a refusal without a code.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => code.as_deref(),
            Self::Malformed { .. } | Self::Limit(_) | Self::Truncated { .. } => None,
        }
    }

    /// Returns the wait before the next attempt that the service requests.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Malformed { .. } | Self::Limit(_) | Self::Truncated { .. } => None,
        }
    }

    /// Returns whether the same request may succeed later.
    ///
    /// `true` for truncated streams, for the statuses 408, 409, 429 and 5xx, and for errors inside an
    /// answer that have no status, unless their code blames the request. `false` for an exhausted quota
    /// (`insufficient_quota`), because waiting does not restore it.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Truncated { .. } => true,
            Self::Refused { status, code, .. } => is_refusal_retryable(*status, code.as_deref()),
            Self::Malformed { .. } | Self::Limit(_) => false,
        }
    }

    /// Sets the text that was received, if this is the error of a truncated stream. Returns any other error
    /// unchanged.
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
        let what = "its message cannot be read".to_owned();
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
                let by = in_words(*status, code.as_deref());
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

/// Returns whether a service that refused a request may accept the same request later. If the refusal has an
/// HTTP status, the status decides, except that the code `insufficient_quota` is never retryable. Without a
/// status, the code decides.
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

/// Parts of error codes, in lower case, which show that the request is the cause: the same request would fail
/// again.
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

fn in_words(status: Option<u16>, code: Option<&str>) -> String {
    let status = status.map(|status| format!(" with status {status}"));
    let code = code.map(|code| format!(" ({code})"));
    [status, code].into_iter().flatten().collect()
}
