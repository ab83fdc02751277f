//! What can go wrong between a request and its answer.

use std::time::Duration;

use tower_chat_core::{BoxError, SentinelAtLeaf};
use tower_chat_openai::OpenAiError;
use tower_chat_wire::{AnswerError, body::BodyError, stream::LimitExceeded};

/// Why there is no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenAiError {
    /// The request carries the sentinel of a local history that nobody below keeps.
    #[error(transparent)]
    Sentinel(#[from] SentinelAtLeaf),
    /// The leaf was given a key, an address or a header that cannot be used, or none at all.
    #[error("the leaf cannot ask the model: {what} cannot be used")]
    Configuration {
        /// What is wrong.
        what: &'static str,
        /// Why, where a library said so.
        source: Option<BoxError>,
    },
    /// The request asks for what this provider, or this leaf, does not have.
    #[error("this provider has no {what}: send the request without it")]
    Unsupported {
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
        /// The service's name for the error, such as `overloaded_error` or `RESOURCE_EXHAUSTED`.
        code: Option<String>,
        /// What the service says, or the body of its answer where it has another shape.
        message: String,
        /// How long to wait before asking again, in the service's words.
        retry_after: Option<Duration>,
        /// The error as it came.
        body: String,
    },
    /// The answer is none that this provider's API can give.
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
    /// A streamed answer broke off before it said that it was complete, and why it ended.
    #[error("the answer was cut off after {} bytes of text: {reason}", text.len())]
    Truncated {
        /// The text that had come.
        text: String,
        /// How it broke off.
        reason: String,
    },
    /// A service compatible with OpenAI failed, as that leaf says it.
    #[error(transparent)]
    Compatible(OpenAiError),
}

impl GenAiError {
    /// The HTTP status, where the service said no.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => *status,
            Self::Compatible(error) => error.status(),
            _ => None,
        }
    }

    /// The service's code for what went wrong.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => code.as_deref(),
            Self::Compatible(error) => error.code(),
            _ => None,
        }
    }

    /// How long the service asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Compatible(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether the same request may succeed later.
    ///
    /// True of broken connections and streams, of the statuses 408, 409, 429 and 5xx, and of errors
    /// inside an answer that name no status, unless their code blames the request.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Truncated { .. } => true,
            Self::Refused { code: Some(code), .. } if code == "insufficient_quota" => false,
            Self::Refused { status: Some(status), .. } => {
                matches!(status, 408 | 409 | 429 | 500..=599)
            }
            Self::Refused { status: None, code, .. } => !code.as_deref().is_some_and(|code| {
                let code = code.to_ascii_lowercase();
                BLAMES_REQUEST.iter().any(|part| code.contains(part))
            }),
            Self::Compatible(error) => error.is_retryable(),
            Self::Sentinel(_)
            | Self::Configuration { .. }
            | Self::Unsupported { .. }
            | Self::Limit(_)
            | Self::Malformed { .. } => false,
        }
    }

    pub(crate) fn malformed(what: impl Into<String>, body: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), body: body.into(), source: None }
    }

    pub(crate) fn configuration(what: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Configuration { what, source: Some(source.into()) }
    }
}

impl From<AnswerError> for GenAiError {
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

impl From<BodyError> for GenAiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Unsupported { what } => Self::Unsupported { what },
            BodyError::Sentinel(error) => Self::Sentinel(error),
            error => Self::Configuration { what: "the request", source: Some(error.into()) },
        }
    }
}

/// What the codes of errors have in them that come again with the same request.
const BLAMES_REQUEST: [&str; 12] = [
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
];

fn in_words(status: Option<u16>, code: Option<&str>) -> String {
    let status = status.map(|status| format!(" with status {status}"));
    let code = code.map(|code| format!(" ({code})"));
    [status, code].into_iter().flatten().collect()
}
