//! [`ErrorResponse`], and its conversion from the errors of a stack.
//!
//! A stack is the tower service that the endpoint calls: a model client, which sends requests to
//! the model's service, inside the layers of tower-chat.

use std::{error::Error, time::Duration};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use serde_json::{Value, json};
use tower::{load_shed::error::Overloaded, timeout::error::Elapsed};
use tower_chat_delivery::{DeliveryError, UpdateLogError};
use tower_chat_layers::{
    BoxError, DeadlineExceeded, PersistenceError, ToolLoopError, idle_timeout::IdleTimeoutExceeded,
    is_verdict, store::StoreError, validate::InvalidRequest,
};
use tower_chat_wire::body::BodyError;

use crate::models::as_json;

/// An HTTP response that reports an error, with a body in the format of OpenAI's API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The message for the client.
    pub message: String,
    /// The error code, by which programs distinguish errors.
    pub code: Option<String>,
    /// The name of the invalid field of the request.
    pub param: Option<String>,
    /// The time that a client should wait before it sends the request again.
    pub retry_after: Option<Duration>,
}

/// The error code for a request whose messages differ from the stored conversation.
const DIVERGED: &str = "conversation_diverged";

/// The error code for the approval or rejection of a tool call that already has a result.
const APPROVAL_ANSWERED: &str = "approval_answered";

impl ErrorResponse {
    /// Creates an error response with a status and a message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message, code: None, param: None, retry_after: None }
    }

    /// Creates an error response for a request that the model's service has refused with this
    /// status. The statuses 400, 404, 413, 422, 429 and 503 are used unchanged, and 529 becomes
    /// 503. Any other status becomes 502, because the cause, such as an invalid API key of the
    /// application, does not concern the client.
    pub fn upstream(status: u16, message: impl Into<String>) -> Self {
        let status = match status {
            400 => StatusCode::BAD_REQUEST,
            404 => StatusCode::NOT_FOUND,
            413 => StatusCode::PAYLOAD_TOO_LARGE,
            422 => StatusCode::UNPROCESSABLE_ENTITY,
            429 => StatusCode::TOO_MANY_REQUESTS,
            503 | 529 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, message)
    }

    /// Adds an error code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds the name of the invalid field of the request.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Adds the time that a client should wait before it sends the request again.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        let passes = matches!(self.status.as_u16(), 408 | 409 | 429 | 502..=504);
        passes && !matches!(self.code.as_deref(), Some(DIVERGED | APPROVAL_ANSWERED))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn no_scope() -> Self {
        let message = "the request was not authenticated: the server must insert a Scope into the \
            extensions of the request";
        Self::new(StatusCode::UNAUTHORIZED, message).with_code("no_scope")
    }

    pub(crate) fn diverged() -> Self {
        let message = "the messages differ from the stored conversation: send only the new \
                       messages, or begin another conversation";
        Self::new(StatusCode::CONFLICT, message).with_code(DIVERGED).with_param("messages")
    }

    pub(crate) fn of_body(error: &BodyError) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            if !is_verdict(error) {
                message += &format!(": {error}");
            }
            source = error.source();
        }
        Self::bad_request(message)
    }

    pub(crate) fn of_store(error: &StoreError) -> Self {
        tracing::error!(
            error = error as &dyn Error,
            "a request failed: the history could not be read"
        );
        Self::of_storage(error.is_retryable())
    }

    /// Converts an error of a stack to an error response, as [`ChatEndpoint`](crate::ChatEndpoint)
    /// does. An application can call this function in its own handlers. The documentation of the
    /// [crate] lists the statuses.
    ///
    /// The function examines the error and then each of its sources, until one of them has an error
    /// response. Each error is passed to `upstream` first, and then compared with the error types
    /// of tower-chat's layers. `upstream` must return the error response for an error of the model
    /// client, whose type this crate does not know, and `None` for
    /// any other error. The text of an internal error is logged, and is not part of the error
    /// response.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_chat_http::ErrorResponse;
    /// use tower_chat_layers::{BoxError, ConversationKey, PersistenceError, RunId};
    ///
    /// let (key, run) = (ConversationKey::new("alice", "chat"), RunId::new());
    /// let error: BoxError = PersistenceError::RunUnderWay { key, run }.into();
    /// let refusal = ErrorResponse::of_error(&error, |_| None);
    /// assert_eq!(refusal.status, StatusCode::CONFLICT);
    /// assert!(refusal.is_retryable());
    /// ```
    pub fn of_error(
        error: &BoxError,
        upstream: impl Fn(&(dyn Error + 'static)) -> Option<Self>,
    ) -> Self {
        let mut next: Option<&(dyn Error + 'static)> = Some(error.as_ref());
        while let Some(error) = next {
            if let Some(refusal) = upstream(error).or_else(|| Self::of_layer(error)) {
                if refusal.status.is_server_error() {
                    tracing::error!(error, "a request failed with an error of the server");
                }
                return refusal;
            }
            next = error.source();
        }
        tracing::error!(
            error = error.as_ref() as &dyn Error,
            "a request failed: the model's service did not answer"
        );
        let message = "the model's service failed; the log of this server has the reason";
        Self::new(StatusCode::BAD_GATEWAY, message).with_code("upstream_error")
    }

    /// Returns the error response for an error of a tower-chat layer; `None` for any other
    /// error, and if the source of the error determines the response.
    fn of_layer(error: &(dyn Error + 'static)) -> Option<Self> {
        match error.downcast_ref::<PersistenceError>() {
            // The source of these errors is the error of the model client, which `of_error`
            // examines next.
            Some(
                PersistenceError::ContentRefused { .. }
                | PersistenceError::ServiceHistoryLost { .. },
            ) => return None,
            Some(error) => return Some(Self::of_persistence(error)),
            None => {}
        }
        if let Some(error) = error.downcast_ref::<InvalidRequest>() {
            return Some(Self::bad_request(error.to_string()).with_param("messages"));
        }
        match error.downcast_ref() {
            Some(
                ToolLoopError::ApprovalMissing { .. }
                | ToolLoopError::ApprovalUnknown { .. }
                | ToolLoopError::ApprovalContradicted { .. }
                | ToolLoopError::ResultsMissing { .. },
            ) => return Some(Self::bad_request(error.to_string())),
            Some(ToolLoopError::ArgumentsNotKept { .. }) => {
                let refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
                return Some(refusal.with_code("arguments_not_kept"));
            }
            Some(ToolLoopError::ApprovalHeld { .. }) => {
                let refusal = Self::new(StatusCode::CONFLICT, error.to_string());
                return Some(refusal.with_code("approval_held"));
            }
            Some(ToolLoopError::ApprovalAnswered { .. }) => {
                let refusal = Self::new(StatusCode::CONFLICT, error.to_string());
                return Some(refusal.with_code(APPROVAL_ANSWERED));
            }
            Some(_) | None => {}
        }
        if let Some(error) = error.downcast_ref::<DeliveryError>() {
            return Self::of_delivery(error);
        }
        if let Some(error) = error.downcast_ref::<UpdateLogError>() {
            return Some(Self::of_storage(error.is_retryable()));
        }
        if error.is::<DeadlineExceeded>()
            || error.is::<IdleTimeoutExceeded>()
            || error.is::<Elapsed>()
        {
            let message = "the answer was not complete in time: send the request again";
            return Some(Self::new(StatusCode::GATEWAY_TIMEOUT, message).with_code("timeout"));
        }
        if error.is::<Overloaded>() {
            let message = "the server is overloaded: send the request again later";
            return Some(Self::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        None
    }

    /// Converts an error of the layer that continues runs after their clients have disconnected.
    /// Returns `None` if the run is unknown, and if the run itself failed, because the source of
    /// the error then determines the response.
    pub(crate) fn of_delivery(error: &DeliveryError) -> Option<Self> {
        match error {
            DeliveryError::TooManyRuns { .. } => {
                let message = "the server is overloaded: send the request again later";
                Some(Self::new(StatusCode::SERVICE_UNAVAILABLE, message))
            }
            DeliveryError::OtherInput { .. } => {
                let refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
                Some(refusal.with_code("run_id_reused"))
            }
            DeliveryError::Interrupted { .. } => {
                let message = "the answer was interrupted: send the request again";
                let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
                Some(refusal.with_code("interrupted"))
            }
            DeliveryError::Truncated { .. } => {
                let message = "the updates of the answer are incomplete: send the request again";
                let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
                Some(refusal.with_code("truncated"))
            }
            DeliveryError::Log(error) => {
                let source = error as &dyn Error;
                tracing::error!(error = source, "a request failed: the update log failed");
                Some(Self::of_storage(error.is_retryable()))
            }
            _ => None,
        }
    }

    fn of_persistence(error: &PersistenceError) -> Self {
        let conflict = || {
            let message = "another request has changed the conversation: send this request again";
            Self::new(StatusCode::CONFLICT, message).with_code("conversation_conflict")
        };
        match error {
            PersistenceError::NotStored(not_stored) if not_stored.conflict().is_some() => {
                conflict()
            }
            PersistenceError::RunOvertaken { .. }
            | PersistenceError::RunUnderWay { .. }
            | PersistenceError::RunHeld { .. }
            | PersistenceError::OpenRun { .. } => conflict(),
            PersistenceError::TranscriptRepeated { .. }
            | PersistenceError::TranscriptDiverged { .. } => Self::diverged(),
            PersistenceError::NothingNew { .. } => Self::bad_request(error.to_string()),
            PersistenceError::EmptyRequest { .. } => {
                Self::bad_request(error.to_string()).with_param("messages")
            }
            PersistenceError::RunIdReused { .. } => {
                let refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
                refusal.with_code("run_id_reused")
            }
            PersistenceError::Dangling { .. } => Self::bad_request(error.to_string()),
            error => Self::of_storage(error.is_retryable()),
        }
    }

    fn of_storage(is_retryable: bool) -> Self {
        let status = match is_retryable {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message =
            "the conversation could not be read or stored; the log of this server has the reason";
        Self::new(status, message).with_code("history_error")
    }

    /// Returns the JSON for the body of an error response, and for an error event in a stream.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {
            "message": self.message, "type": kind, "param": self.param, "code": self.code,
        }})
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let mut response = as_json(self.status, &self.body());
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::CONFLICT && !self.is_retryable() {
            // OpenAI's SDKs send a request again after the status 409, unless the response has this
            // header.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}
