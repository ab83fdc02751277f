//! The service that the layer creates.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

use super::{drive, settings::Settings};
use crate::{
    ResponseFuture,
    layers_below::{LayerKind, LayersBelow, report_readiness_poll},
};

/// The service that [`ToolLoopLayer`](super::ToolLoopLayer) creates around another service.
///
/// The errors of the service are those of the inner service and [`ToolLoopError`](super::ToolLoopError),
/// as [`BoxError`]s.
#[derive(Clone)]
pub struct ToolLoop<S> {
    inner: S,
    settings: Arc<Settings>,
    below: Arc<LayersBelow>,
}

impl<S> ToolLoop<S> {
    tower_chat_core::__inner_service_accessors!(S);

    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings, below: Arc::default() }
    }
}

impl<S> Service<ChatRequest> for ToolLoop<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        report_readiness_poll(LayerKind::ToolLoop);
        if self.settings.assumes_persister_below {
            report_readiness_poll(LayerKind::PerServiceCallPersistence);
        }
        self.below.poll_ready(&mut self.inner, cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let fresh = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, fresh);
        ResponseFuture::new(drive::run(ready, self.settings.clone(), self.below.clone(), request))
    }
}

impl<S: fmt::Debug> fmt::Debug for ToolLoop<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolLoop").field("inner", &self.inner).finish_non_exhaustive()
    }
}
