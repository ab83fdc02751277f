//! The error type of all clients.

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

/// The error of a call to a provider that returned no answer, or an incomplete answer.
///
/// The clients of all providers return this type. [`kind`](Self::kind) returns what failed. The
/// other methods return values that retry policies, logs and users need, for every kind of failure.
/// Neither `Debug` nor `Display` prints a key, even if the service repeats the key in its error.
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
    /// Set if the request refers to a history that the service no longer stores.
    history_lost: Option<HistoryLost>,
    /// Set if the service has refused the request, possibly because of the content of its messages.
    content_refused: Option<ContentRefused>,
    kind: Box<ProviderErrorKind>,
}

/// The kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The request contains only new messages, because its history owner is
    /// [`Local`](tower_chat_core::HistoryOwner::Local). A layer above the client must add the
    /// history to such a request, and no layer has added it.
    Sentinel(SentinelAtClient),
    /// The key, the base URL or a header of the client is not valid in HTTP, or a required setting
    /// is missing.
    Configuration {
        /// The setting that is not valid or missing.
        what: String,
        /// The error of the library that checks the setting, if any.
        source: Option<BoxError>,
    },
    /// The API cannot express the request.
    Unsupported {
        /// The part of the request that the API does not have.
        what: String,
    },
    /// The new messages of the request contain media that the service does not accept. The request
    /// was not sent.
    UnsupportedMedia(UnsupportedMedia),
    /// The transport, or a layer around it, failed before the client received a response.
    Transport {
        /// The error of the transport.
        source: BoxError,
    },
    /// The service refused the request, with an HTTP status or with an error inside its answer.
    Refused(Refusal),
    /// The service sent a body that is not an answer of its API.
    Malformed {
        /// A description of the fault, for the error message.
        what: String,
        /// The part of the body that is wrong, as the service sent it.
        body: String,
        /// The error of the parser, if the parser found the fault.
        source: Option<BoxError>,
    },
    /// The answer exceeds one of the client's [`Limits`](tower_chat_wire::stream::Limits).
    Limit(LimitExceeded),
    /// A streamed answer ended, or its connection failed, before the answer was complete.
    Truncated {
        /// The text that was received before the stream ended.
        text: String,
        /// A description of how the stream ended, for the error message.
        reason: String,
    },
}

/// The refusal of a request by a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status of the response. If the error is inside an answer, which has the HTTP status
    /// 200, this is the status that the error itself contains, if any.
    pub status: Option<u16>,
    /// The service's code for the error, or the type of the error if it has no code:
    /// `context_length_exceeded`, `overloaded_error`, `RESOURCE_EXHAUSTED`, `ThrottlingException`.
    pub code: Option<String>,
    /// The service's error message, or the whole body if the body contains no message. If the
    /// client could not read the whole body, this field says why.
    pub message: String,
    /// How long the client has to wait before the next attempt, if the service has sent this time.
    pub retry_after: Option<Duration>,
    /// The error as the service sent it, up to
    /// [`max_error_bytes`](tower_chat_wire::stream::Limits::max_error_bytes).
    pub body: String,
}

impl ProviderError {
    /// Creates an error. Providers and layers outside this crate need this function. If the source
    /// in `kind` does not report the same retryability as [`is_retryable`](Self::is_retryable),
    /// this function wraps the source in a [`Classified`] with the retryability of this error.
    pub fn new(provider: &'static str, kind: ProviderErrorKind) -> Self {
        let (request_id, history_lost, content_refused) = (None, None, None);
        let kind = Box::new(kind.classified());
        Self { provider, request_id, history_lost, content_refused, kind }
    }

    /// Sets the provider of an error from a layer below the client.
    pub(crate) fn of_provider(self, provider: &'static str) -> Self {
        Self { provider, ..self }
    }

    /// Returns what failed.
    pub fn kind(&self) -> &ProviderErrorKind {
        &self.kind
    }

    /// Returns what failed, and consumes the error.
    pub fn into_kind(self) -> ProviderErrorKind {
        *self.kind
    }

    /// Returns the name of the provider: `openai`, `anthropic`, `gemini`, `vertex`, `bedrock`,
    /// `cohere`, `ollama`, `mistral`, or the name of a compatible service.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Returns the HTTP status of a refusal, or the status that an error inside an answer contains.
    pub fn status(&self) -> Option<u16> {
        self.refusal()?.status
    }

    /// Returns the service's code for the error.
    pub fn code(&self) -> Option<&str> {
        self.refusal()?.code.as_deref()
    }

    /// Returns the id that the service has assigned to the request. The support of the service
    /// needs this id. Returns `None` if the service sent no id.
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Returns how long the client has to wait before the next attempt. The time is read from
    /// `retry-after-ms`, from `retry-after` (seconds or a date), from Google's `retryDelay`, or
    /// from the headers with the reset times of rate limits. Returns `None` if the service sent
    /// none of them.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal()?.retry_after
    }

    /// Returns the refusal, if the service refused the request.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &*self.kind {
            ProviderErrorKind::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Returns whether the same request may succeed later.
    ///
    /// - For an error of the transport: the result of [`tower_chat_core::is_retryable`], or `true`
    ///   if that function returns `None`.
    /// - For a stream that ended too early: `true`.
    /// - For a refusal with a status: `true` for the statuses 408, 409, 429 and 5xx.
    /// - For a refusal without a status: `true`, unless its code shows that the request is the
    ///   cause.
    /// - For a refusal because of an exhausted quota, a lost history or the content of the
    ///   messages: `false`, because the same request would be refused again.
    /// - For any other error: `false`.
    pub fn is_retryable(&self) -> bool {
        match &*self.kind {
            ProviderErrorKind::Truncated { .. } => true,
            ProviderErrorKind::Transport { source } => is_retryable(&**source).unwrap_or(true),
            // A retry would refer to the same lost history, or send the same refused content.
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

    /// Marks a refusal as [lost history](tower_chat_core::is_history_lost) if the service no longer
    /// stores the history. `service_id` is the id of this history in the request, if any.
    ///
    /// The history is lost if the code of the refusal is `previous_response_not_found`. OpenAI,
    /// Azure and xAI also send a message with the id and "not found", and the status 400 or 404.
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

    /// Marks a refusal as [`ContentRefused`] if the service may have refused the content of the
    /// messages. `issuer` is the name of the service.
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

    /// Applies a function to the texts that the service has sent, except the text of an incomplete
    /// answer.
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
    /// Wraps the source if it does not report the retryability of this kind.
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

/// Creates the errors of one provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errors(pub(crate) &'static str);

impl Errors {
    pub(crate) fn with_kind(self, kind: ProviderErrorKind) -> ProviderError {
        ProviderError::new(self.0, kind)
    }

    /// Converts the error of reading an answer.
    pub(crate) fn answer_error(self, error: AnswerError) -> ProviderError {
        self.with_kind(match error {
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

    /// Returns the refusal in an `AnswerError`. For any other error, returns a refusal whose
    /// message is the text of the error, and whose body is `body`.
    pub(crate) fn refusal(self, error: AnswerError, body: String) -> Refusal {
        match error {
            AnswerError::Refused { status, code, message, retry_after, body, .. } => {
                Refusal { status, code, message, retry_after, body }
            }
            error => Refusal { message: error.to_string(), body, ..Refusal::default() },
        }
    }

    /// Converts the error of a request that the JSON format of the API cannot express.
    #[cfg(any(feature = "bedrock", feature = "ollama"))]
    pub(crate) fn body_error(self, error: BodyError) -> ProviderError {
        match error {
            BodyError::Unsupported { what } => self.unsupported(what),
            BodyError::Sentinel(error) => self.with_kind(ProviderErrorKind::Sentinel(error)),
            error => self.configuration("the request cannot be written", error),
        }
    }

    pub(crate) fn malformed(
        self,
        what: impl Into<String>,
        body: impl Into<String>,
    ) -> ProviderError {
        let (what, body) = (what.into(), body.into());
        self.with_kind(ProviderErrorKind::Malformed { what, body, source: None })
    }

    pub(crate) fn unsupported(self, what: impl Into<String>) -> ProviderError {
        self.with_kind(ProviderErrorKind::Unsupported { what: what.into() })
    }

    pub(crate) fn transport(self, source: impl Into<BoxError>) -> ProviderError {
        self.with_kind(ProviderErrorKind::Transport { source: source.into() })
    }

    pub(crate) fn limit_error(self, error: LimitExceeded) -> ProviderError {
        self.with_kind(ProviderErrorKind::Limit(error))
    }

    pub(crate) fn configuration(
        self,
        what: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> ProviderError {
        let (what, source) = (what.into(), Some(source.into()));
        self.with_kind(ProviderErrorKind::Configuration { what, source })
    }

    pub(crate) fn missing(self, what: impl Into<String>) -> ProviderError {
        self.with_kind(ProviderErrorKind::Configuration { what: what.into(), source: None })
    }
}
