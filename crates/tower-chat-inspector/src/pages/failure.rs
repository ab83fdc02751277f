//! The page that replaces another page if a request fails.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use tower_chat_layers::{is_verdict, store::StoreError};

use crate::view::visible;

/// A failed request. The response is a page with an error message.
#[derive(Debug, Template)]
#[template(path = "failure.html")]
pub(crate) struct Failure {
    #[template(skip)]
    status: StatusCode,
    what: String,
}

impl Failure {
    pub(crate) fn refused(status: StatusCode, what: impl Into<String>) -> Self {
        Self { status, what: what.into() }
    }

    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::refused(StatusCode::NOT_FOUND, what)
    }

    pub(super) fn no_scope() -> Self {
        Self::refused(StatusCode::BAD_REQUEST, "The address has no scope. Add scope=NAME to it.")
    }

    pub(super) fn other_scope() -> Self {
        Self::refused(StatusCode::FORBIDDEN, "These pages do not show this scope.")
    }

    pub(super) fn template(error: askama::Error) -> Self {
        tracing::error!(%error, "a page could not be rendered");
        Self::refused(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be rendered.")
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::NoConversation { .. } => StatusCode::NOT_FOUND,
            StoreError::UnderWay { .. } | StoreError::Conflict(_) => StatusCode::CONFLICT,
            _ => StatusCode::BAD_GATEWAY,
        };
        let mut what = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            if !is_verdict(cause) {
                what = format!("{what}: {cause}");
            }
            source = cause.source();
        }
        Self::refused(status, visible(&what))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.status;
        let page = self.render().unwrap_or_else(|_| "The page could not be rendered.".to_owned());
        (status, Html(page)).into_response()
    }
}
