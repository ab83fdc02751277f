//! The errors of a provider's client.

use std::{fmt, sync::Arc, time::Duration};

use tower_chat_core::{
    BoxError, Classified, ContentRefused, HistoryLost, Retryability, SentinelAtClient, is_retryable,
};
#[cfg(any(feature = "bedrock", feature = "ollama"))]
use tower_chat_wire::body::BodyError;
use tower_chat_wire::{
    AnswerError, is_refusal_retryable, rules::UnsupportedMedia, stream::LimitExceeded,
};

use crate::refused_content::content_refused;

/// The reason why a call of a provider returned no answer, or an incomplete one.
///
/// One type serves all providers. [`kind`](Self::kind) distinguishes the failures. The other methods
/// return what retry policies, logs and users need, for every kind. Neither `Debug` nor `Display` prints
/// a key: a key that the service repeats in its error is replaced.
///
/// ```
/// use tower_chat_providers::{ProviderError, ProviderErrorKind};
///
/// fn describe(error: &ProviderError) -> String {
///     match error.kind() {
///         ProviderErrorKind::Refused(refusal) => format!("refused: {}", refusal.message),
///         ProviderErrorKind::Truncated { text, .. } => format!("cut off after {text:?}"),
///         _ if error.is_retryable() => format!("try again: {error}"),
///         _ => error.to_string(),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct ProviderError {
    provider: &'static str,
    request_id: Option<Box<str>>,
    /// Set if the service no longer stores the history that the request refers to.
    history_lost: Option<HistoryLost>,
    /// Set if the service has refused the request, and the content of its messages may be the reason.
    content_refused: Option<ContentRefused>,
    kind: Box<ProviderErrorKind>,
}

/// The kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The request promises a local history, but no layer above the client keeps one.
    Sentinel(SentinelAtClient),
    /// The client's key, address or a header is not valid in HTTP, or a required setting is missing.
    Configuration {
        /// The setting that is not valid or missing.
        what: String,
        /// The error of the library that reported it, if there is one.
        source: Option<BoxError>,
    },
    /// The API cannot express the request.
    Unsupported {
        /// The part of the request that the API does not have.
        what: String,
    },
    /// The request adds media that the service does not accept. The request was not sent.
    UnsupportedMedia(UnsupportedMedia),
    /// The transport, or a layer of it, failed before the response arrived.
    Transport {
        /// The error of the transport.
        source: BoxError,
    },
    /// The service refused the request, with an HTTP status or with an error inside its answer.
    Refused(Refusal),
    /// The service sent a body that is not an answer of its API.
    Malformed {
        /// The fault of the body.
        what: String,
        /// The part of the body that is wrong, as the service sent it.
        body: String,
        /// The error of the parser that reported the fault, if there is one.
        source: Option<BoxError>,
    },
    /// The answer is larger, or is nested more deeply, than the client's
    /// [`Limits`](tower_chat_wire::stream::Limits) allow.
    Limit(LimitExceeded),
    /// A streamed answer ended, or its connection broke, before the service had marked the answer as
    /// complete.
    Truncated {
        /// The text that was received.
        text: String,
        /// The way in which the stream ended.
        reason: String,
    },
}

/// The refusal of a request by a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status. For an error inside an answer: the status that the error names, if there is one.
    pub status: Option<u16>,
    /// The service's error code, or its error type if it has no code: `context_length_exceeded`,
    /// `overloaded_error`, `RESOURCE_EXHAUSTED`, `ThrottlingException`.
    pub code: Option<String>,
    /// The service's message, or the body if there is no message. If the body could not be read to its
    /// end, the reason.
    pub message: String,
    /// The wait that the service requests before the next attempt.
    pub retry_after: Option<Duration>,
    /// The error as the service sent it, up to
    /// [`max_error_bytes`](tower_chat_wire::stream::Limits::max_error_bytes).
    pub body: String,
}

impl ProviderError {
    /// Creates an error, for providers and layers outside this crate. If the source of `kind` has no
    /// retryability, or one that differs from [`is_retryable`](Self::is_retryable), wraps the source in
    /// a [`Classified`] with the same retryability as the error.
    pub fn new(provider: &'static str, kind: ProviderErrorKind) -> Self {
        let (request_id, history_lost, content_refused) = (None, None, None);
        let kind = Box::new(kind.classified());
        Self { provider, request_id, history_lost, content_refused, kind }
    }

    /// Returns the same error with another provider name. The errors of a layer get the name of the
    /// client above.
    pub(crate) fn of_provider(self, provider: &'static str) -> Self {
        Self { provider, ..self }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> &ProviderErrorKind {
        &self.kind
    }

    /// Returns the kind of the failure by value.
    pub fn into_kind(self) -> ProviderErrorKind {
        *self.kind
    }

    /// Returns the name of the provider: `openai`, `anthropic`, `gemini`, `vertex`, `bedrock`, `cohere`,
    /// `ollama`, `mistral`, or the name of a compatible service.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Returns the HTTP status with which the service refused the request, or the status that an error
    /// inside its answer names.
    pub fn status(&self) -> Option<u16> {
        self.refusal()?.status
    }

    /// Returns the service's own error code.
    pub fn code(&self) -> Option<&str> {
        self.refusal()?.code.as_deref()
    }

    /// Returns the service's id of the request, which its support needs; `None` if the service sent none.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Returns the wait that the service requests before the same request is sent again: from
    /// `retry-after-ms`, from `retry-after` (seconds or a date), from Google's `retryDelay`, or from the
    /// headers with the reset times of exhausted rate limits. `None` if the service sent none of them.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal()?.retry_after
    }

    /// Returns the service's refusal, if the failure is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &*self.kind {
            ProviderErrorKind::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Returns whether the same request may succeed later.
    ///
    /// `true` for broken connections and streams, for the statuses 408, 409, 429 and 5xx, and for errors
    /// inside an answer that have no status, unless their code blames the request. `false` for an
    /// exhausted quota, because waiting does not restore it. An error of the transport that is
    /// classified ([`tower_chat_core::is_retryable`]) has its own retryability. `false` too for a
    /// refusal that reports a lost history or blames the content of the messages.
    pub fn is_retryable(&self) -> bool {
        match &*self.kind {
            ProviderErrorKind::Truncated { .. } => true,
            ProviderErrorKind::Transport { source } => is_retryable(&**source).unwrap_or(true),
            // A repetition would name the same lost history, or send the same refused content.
            ProviderErrorKind::Refused(_)
                if self.history_lost.is_some() || self.content_refused.is_some() =>
            {
                false
            }
            ProviderErrorKind::Refused(refusal) => refusal.is_retryable(),
            ProviderErrorKind::Sentinel(_)
            | ProviderErrorKind::Configuration { .. }
            | ProviderErrorKind::Unsupported { .. }
            | ProviderErrorKind::UnsupportedMedia(_)
            | ProviderErrorKind::Limit(_)
            | ProviderErrorKind::Malformed { .. } => false,
        }
    }

    /// If the error is a refusal, and the request had a service id: records whether the service no
    /// longer stores the history with this id. [`tower_chat_core::is_history_lost`] then returns `true`
    /// for the error.
    ///
    /// A history is lost if the code is `previous_response_not_found`. A history is also lost if the
    /// message contains the id and "not found", with the status 400 or 404 or without a status, as
    /// OpenAI, Azure and xAI report it.
    pub(crate) fn with_service_id(mut self, service_id: Option<&str>) -> Self {
        if let (ProviderErrorKind::Refused(refusal), Some(id)) = (&*self.kind, service_id) {
            let is_named = refusal.code.as_deref() == Some("previous_response_not_found");
            let is_missing = matches!(refusal.status, Some(400 | 404) | None)
                && refusal.message.contains(id)
                && refusal.message.to_ascii_lowercase().contains("not found");
            self.history_lost = (is_named || is_missing).then_some(HistoryLost);
        }
        self
    }

    /// If the error is a refusal: records whether the content of the messages may be the reason.
    /// `issuer` is the name of the service. [`tower_chat_core::content_refused`] then returns the
    /// record.
    pub(crate) fn with_issuer(mut self, issuer: Option<&Arc<str>>) -> Self {
        if let (ProviderErrorKind::Refused(refusal), Some(issuer)) = (&*self.kind, issuer) {
            self.content_refused = content_refused(refusal, issuer);
        }
        self
    }

    pub(crate) fn with_request_id(mut self, id: Option<&str>) -> Self {
        if self.request_id.is_none() {
            self.request_id = id.map(Into::into);
        }
        self
    }

    /// Applies a function to the texts of the error that may repeat a text of the service's error or
    /// body. The text of a partial answer is not changed.
    pub(crate) fn map_texts(mut self, change: impl Fn(&mut String)) -> Self {
        match &mut *self.kind {
            ProviderErrorKind::Refused(refusal) => {
                refusal.code.iter_mut().for_each(&change);
                change(&mut refusal.message);
                change(&mut refusal.body);
            }
            ProviderErrorKind::Malformed { what, body, .. } => {
                change(what);
                change(body);
            }
            ProviderErrorKind::Truncated { reason, .. } => change(reason),
            ProviderErrorKind::Sentinel(_)
            | ProviderErrorKind::Configuration { .. }
            | ProviderErrorKind::Unsupported { .. }
            | ProviderErrorKind::UnsupportedMedia(_)
            | ProviderErrorKind::Transport { .. }
            | ProviderErrorKind::Limit(_) => {}
        }
        self
    }
}

impl ProviderErrorKind {
    /// Returns the same kind. Its source, if it has one, has the same retryability as the kind.
    fn classified(self) -> Self {
        let classify = |retryability, source: BoxError| match is_retryable(&*source) {
            Some(is_retryable) if Retryability::from_retryable(is_retryable) == retryability => {
                source
            }
            Some(_) | None => Classified::new(retryability, source).into(),
        };
        let permanent =
            |source: Option<_>| source.map(|source| classify(Retryability::Permanent, source));
        match self {
            Self::Transport { source } => {
                let is_retryable = is_retryable(&*source).unwrap_or(true);
                let source = classify(Retryability::from_retryable(is_retryable), source);
                Self::Transport { source }
            }
            Self::Configuration { what, source } => {
                Self::Configuration { what, source: permanent(source) }
            }
            Self::Malformed { what, body, source } => {
                Self::Malformed { what, body, source: permanent(source) }
            }
            Self::Sentinel(_)
            | Self::UnsupportedMedia(_)
            | Self::Unsupported { .. }
            | Self::Refused(_)
            | Self::Limit(_)
            | Self::Truncated { .. } => self,
        }
    }
}

impl Refusal {
    pub(crate) fn is_retryable(&self) -> bool {
        is_refusal_retryable(self.status, self.code.as_deref())
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provider = self.provider;
        match &*self.kind {
            ProviderErrorKind::Sentinel(error) => error.fmt(f),
            ProviderErrorKind::Configuration { what, .. } => {
                write!(f, "the {provider} client cannot be used: {what}")
            }
            ProviderErrorKind::UnsupportedMedia(error) => error.fmt(f),
            ProviderErrorKind::Unsupported { what } => {
                write!(f, "{provider} has no {what}: send the request without it")
            }
            ProviderErrorKind::Transport { source } => {
                write!(f, "the request to {provider} failed: {source}")
            }
            ProviderErrorKind::Refused(refusal) => {
                write!(f, "{provider} refused the request")?;
                if let Some(status) = refusal.status {
                    write!(f, " with status {status}")?;
                }
                if let Some(code) = &refusal.code {
                    write!(f, " ({code})")?;
                }
                write!(f, ": {}", refusal.message)
            }
            ProviderErrorKind::Malformed { what, .. } => {
                write!(f, "the answer of {provider} cannot be read: {what}")
            }
            ProviderErrorKind::Limit(error) => error.fmt(f),
            ProviderErrorKind::Truncated { text, reason } => {
                let length = text.len();
                write!(
                    f,
                    "the answer of {provider} was cut off after {length} bytes of text: {reason}"
                )
            }
        }?;
        match &self.request_id {
            Some(id) => write!(f, " [request {id}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ProviderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.kind {
            ProviderErrorKind::Sentinel(error) => Some(error),
            ProviderErrorKind::Limit(error) => Some(error),
            ProviderErrorKind::Transport { source } => Some(&**source),
            ProviderErrorKind::UnsupportedMedia(error) => Some(error),
            ProviderErrorKind::Configuration { source: Some(source), .. }
            | ProviderErrorKind::Malformed { source: Some(source), .. } => Some(&**source),
            ProviderErrorKind::Configuration { .. }
            | ProviderErrorKind::Malformed { .. }
            | ProviderErrorKind::Unsupported { .. }
            | ProviderErrorKind::Refused(_)
            | ProviderErrorKind::Truncated { .. } => {
                match (&self.history_lost, &self.content_refused) {
                    (Some(lost), _) => Some(lost),
                    (None, Some(refused)) => Some(refused),
                    (None, None) => {
                        Some(Retryability::from_retryable(self.is_retryable()).as_source())
                    }
                }
            }
        }
    }
}

/// Makes errors of one provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errors(pub(crate) &'static str);

impl Errors {
    pub(crate) fn make(self, kind: ProviderErrorKind) -> ProviderError {
        ProviderError::new(self.0, kind)
    }

    /// Converts an error of the reader of an answer.
    pub(crate) fn answer(self, error: AnswerError) -> ProviderError {
        self.make(match error {
            AnswerError::Malformed { what, body, source, .. } => {
                ProviderErrorKind::Malformed { what, body, source }
            }
            AnswerError::Limit(error) => ProviderErrorKind::Limit(error),
            AnswerError::Truncated { text, reason, .. } => {
                ProviderErrorKind::Truncated { text, reason }
            }
            error => ProviderErrorKind::Refused(self.refusal(error, String::new())),
        })
    }

    /// Returns the refusal in an `AnswerError`. For another error: a refusal with the text of the error
    /// and with `body`.
    pub(crate) fn refusal(self, error: AnswerError, body: String) -> Refusal {
        match error {
            AnswerError::Refused { status, code, message, retry_after, body, .. } => {
                Refusal { status, code, message, retry_after, body }
            }
            error => Refusal { message: error.to_string(), body, ..Refusal::default() },
        }
    }

    /// Converts the error of a request that the wire cannot express.
    #[cfg(any(feature = "bedrock", feature = "ollama"))]
    pub(crate) fn body(self, error: BodyError) -> ProviderError {
        match error {
            BodyError::Unsupported { what } => self.unsupported(what),
            BodyError::Sentinel(error) => self.make(ProviderErrorKind::Sentinel(error)),
            error => self.configuration("the request cannot be written", error),
        }
    }

    pub(crate) fn malformed(
        self,
        what: impl Into<String>,
        body: impl Into<String>,
    ) -> ProviderError {
        let (what, body) = (what.into(), body.into());
        self.make(ProviderErrorKind::Malformed { what, body, source: None })
    }

    pub(crate) fn unsupported(self, what: impl Into<String>) -> ProviderError {
        self.make(ProviderErrorKind::Unsupported { what: what.into() })
    }

    pub(crate) fn transport(self, source: impl Into<BoxError>) -> ProviderError {
        self.make(ProviderErrorKind::Transport { source: source.into() })
    }

    pub(crate) fn limit(self, error: LimitExceeded) -> ProviderError {
        self.make(ProviderErrorKind::Limit(error))
    }

    pub(crate) fn configuration(
        self,
        what: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> ProviderError {
        let (what, source) = (what.into(), Some(source.into()));
        self.make(ProviderErrorKind::Configuration { what, source })
    }

    pub(crate) fn missing(self, what: impl Into<String>) -> ProviderError {
        self.make(ProviderErrorKind::Configuration { what: what.into(), source: None })
    }
}
