//! The model client.

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
pub struct AdaptService<S, C> {
    client: S,
    codec: Arc<C>,
}

impl<S, C> AdaptService<S, C> {
    pub(super) fn new(client: S, codec: Arc<C>) -> Self {
        Self { client, codec }
    }
}

impl<S, C> Service<ChatRequest> for AdaptService<S, C>
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
        self.client.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let encoded = match request.service_id() {
            Ok(_) => self.codec.encode(request),
            Err(sentinel) => Err(sentinel.into()),
        };
        let response = match encoded {
            Ok(request) => self.client.call(request),
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

impl<S: Clone, C> Clone for AdaptService<S, C> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), codec: self.codec.clone() }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for AdaptService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptService").field("client", &self.client).finish_non_exhaustive()
    }
}
