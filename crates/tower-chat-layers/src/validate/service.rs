//! The service of the layer that checks requests.

use std::task::{Context, Poll};

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

use super::{InvalidRequest, ValidateTranscriptLayer, validate_request};
use crate::ResponseFuture;

/// The service that [`ValidateTranscriptLayer`] creates.
#[derive(Debug, Clone)]
pub struct ValidateTranscript<S> {
    inner: S,
    layer: ValidateTranscriptLayer,
}

impl<S> ValidateTranscript<S> {
    tower_chat_core::__inner_service_accessors!(S);

    pub(super) fn new(inner: S, layer: ValidateTranscriptLayer) -> Self {
        Self { inner, layer }
    }
}

impl<S> Service<ChatRequest> for ValidateTranscript<S>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let result = if self.layer.enabled { check(&request) } else { Ok(()) };
        match result {
            Ok(()) => {
                let response = self.inner.call(request);
                ResponseFuture::new(async { response.await.map_err(Into::into) })
            }
            Err(invalid) => ResponseFuture::new(std::future::ready(Err(invalid.into()))),
        }
    }
}

fn check(request: &ChatRequest) -> Result<(), InvalidRequest> {
    validate_request(request).map_err(|source| InvalidRequest {
        conversation: request.conversation().map(|conversation| conversation.key.clone()),
        source,
    })
}
