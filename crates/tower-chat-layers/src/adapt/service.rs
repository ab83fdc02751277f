//! The service of the layer that converts an existing client into a model client.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

use super::ClientCodec;
use crate::ResponseFuture;

/// The model client that [`AdaptLayer`](super::AdaptLayer) creates.
pub struct Adapt<S, C> {
    inner: S,
    codec: Arc<C>,
}

impl<S, C> Adapt<S, C> {
    tower_chat_core::__inner_service_accessors!(S);

    pub(super) fn new(inner: S, codec: Arc<C>) -> Self {
        Self { inner, codec }
    }
}

impl<S, C> Service<ChatRequest> for Adapt<S, C>
where
    C: ClientCodec,
    S: Service<C::Request, Response = C::Response>,
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
        let encoded = match request.service_id() {
            Ok(_) => self.codec.encode(request),
            Err(sentinel) => Err(sentinel.into()),
        };
        let response = match encoded {
            Ok(request) => self.inner.call(request),
            Err(error) => return ResponseFuture::new(std::future::ready(Err(error))),
        };
        let codec = self.codec.clone();
        ResponseFuture::new(async move {
            let response = match response.await {
                Ok(response) => codec.decode(response),
                Err(error) => return Err(error.into()),
            };
            response.await
        })
    }
}

impl<S: Clone, C> Clone for Adapt<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), codec: self.codec.clone() }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Adapt<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapt").field("inner", &self.inner).finish_non_exhaustive()
    }
}
