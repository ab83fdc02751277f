//! What can go wrong between a request and its answer.

use std::time::Duration;

use tower_chat_core::{BoxError, SentinelAtLeaf};
use tower_chat_wire::{AnswerError, stream::LimitExceeded};

/// Why there is no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenAiError {
    /// The request carries the sentinel of a local history that nobody below keeps.
    #[error(transparent)]
    Sentinel(#[from] SentinelAtLeaf),
    /// The leaf was given a key, an address or a header that HTTP cannot carry.
    #[error("the OpenAI leaf cannot be made: {what} cannot be used")]
    Configuration {
        /// What is wrong.
        what: &'static str,
        /// Why, where a library said so.
        source: Option<BoxError>,
    },
    /// The request asks for what the API does not have.
    #[error("{api} has no {what}: send the request without it")]
    Unsupported {
        /// The API.
        api: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// The request did not reach the service, or no answer came back.
    #[error("the chat service could not be reached: {source}")]
    Connection {
        /// What the HTTP client says.
        source: BoxError,
    },
    /// The service said no, by an HTTP status or by an error inside its answer.
    #[error("the chat service refused the request{}: {message}", in_words(*.status, .code.as_deref()))]
    #[non_exhaustive]
    Refused {
        /// The HTTP status; of an error inside an answer the one it names, if it does.
        status: Option<u16>,
        /// The service's code or else its type of the error, such as `context_length_exceeded`.
        code: Option<String>,
        /// What the service says, or the body of its answer where it has another shape.
        message: String,
        /// How long to wait before asking again, in the service's words.
        retry_after: Option<Duration>,
        /// The error as it came.
        body: String,
    },
    /// The answer is none that the API can give.
    #[error("the chat service's answer cannot be read: {what}")]
    Malformed {
        /// What is wrong with it.
        what: String,
        /// The part of the answer that is wrong, as it came.
        body: String,
        /// Why, where a parser said so.
        source: Option<BoxError>,
    },
    /// The answer is larger, or nested more deeply, than the leaf was told to take.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A streamed answer broke off before it said that it was complete.
    #[error("the answer was cut off after {} bytes of text: {reason}", text.len())]
    Truncated {
        /// The text that had come.
        text: String,
        /// How it broke off.
        reason: String,
    },
}

impl OpenAiError {
    /// The HTTP status, where the service said no.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => *status,
            _ => None,
        }
    }

    /// The service's code for what went wrong.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => code.as_deref(),
            _ => None,
        }
    }

    /// How long the service asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the same request may succeed later.
    ///
    /// True of broken connections and streams, of the statuses 408, 409, 429 and 5xx, and of errors
    /// inside an answer that name no status, unless their code blames the request; not of an
    /// exhausted quota, which waiting does not fill.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Truncated { .. } => true,
            Self::Refused { code: Some(code), .. } if code == "insufficient_quota" => false,
            Self::Refused { status: Some(status), .. } => {
                matches!(status, 408 | 409 | 429 | 500..=599)
            }
            Self::Refused { status: None, code, .. } => !code
                .as_deref()
                .is_some_and(|code| BLAMES_REQUEST.iter().any(|part| code.contains(part))),
            Self::Sentinel(_)
            | Self::Configuration { .. }
            | Self::Unsupported { .. }
            | Self::Limit(_)
            | Self::Malformed { .. } => false,
        }
    }

    pub(crate) fn connection(source: impl Into<BoxError>) -> Self {
        Self::Connection { source: source.into() }
    }

    pub(crate) fn malformed(what: impl Into<String>, body: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), body: body.into(), source: None }
    }
}

impl From<AnswerError> for OpenAiError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Refused { status, code, message, retry_after, body, .. } => {
                Self::Refused { status, code, message, retry_after, body }
            }
            AnswerError::Malformed { what, body, source, .. } => {
                Self::Malformed { what, body, source }
            }
            AnswerError::Limit(error) => Self::Limit(error),
            AnswerError::Truncated { text, reason, .. } => Self::Truncated { text, reason },
            error => Self::malformed(error.to_string(), ""),
        }
    }
}

/// What the codes of errors have in them that come again with the same request.
const BLAMES_REQUEST: [&str; 6] =
    ["invalid", "context_length", "content_filter", "policy", "not_found", "unsupported"];

fn in_words(status: Option<u16>, code: Option<&str>) -> String {
    let status = status.map(|status| format!(" with status {status}"));
    let code = code.map(|code| format!(" ({code})"));
    [status, code].into_iter().flatten().collect()
}
