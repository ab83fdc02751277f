//! The service of the layer.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use tower_chat_layers::{BoxError, ChatRequest, ChatResponse, Retryability, run::Run};
use tower_service::Service;
use tracing::Instrument;

use super::{
    Entered, Shared,
    hub::{HubReader, Phase},
    reader::{Follower, response},
    task::RunTask,
};
use crate::{DeliveryError, RunKey, UpdatePosition};

/// The service that [`DetachedRunsLayer`](crate::DetachedRunsLayer) creates.
#[derive(Debug, Clone)]
pub struct DetachedRuns<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> DetachedRuns<S> {
    tower_chat_layers::__macro::inner_service_accessors!(S);

    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S> Service<ChatRequest> for DetachedRuns<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ChatResponse, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        match request.conversation().map(RunKey::from) {
            Some(run) => Box::pin(detached(ready, request, run, self.shared.clone())),
            None => {
                let call = ready.call(request);
                Box::pin(async move { call.await.map_err(Into::into) })
            }
        }
    }
}

/// Executes the run of a request in a new task, or joins the run that is in progress.
async fn detached<S>(
    service: S,
    mut request: ChatRequest,
    run: RunKey,
    shared: Arc<Shared>,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    if request.extensions.get::<Run>().is_some() {
        let source = Retryability::Permanent;
        return Err(DeliveryError::BelowPersistence { run, source }.into());
    }
    let input = request.new_messages();
    if input.is_empty() {
        shared.wait_for_other_process(&run).await?;
    }
    let reader = match shared.enter(&run, request.run_handle(), &input)? {
        Entered::InProgress(hub) if hub.can_have_input(&input) => hub.reader(),
        Entered::InProgress(_) => {
            let source = Retryability::Permanent;
            return Err(DeliveryError::OtherInput { run, source }.into());
        }
        Entered::New(hub) => {
            let reader = hub.reader();
            let task = RunTask::new(shared.clone(), run.clone(), hub);
            tokio::spawn(task.execute(service, request).in_current_span());
            reader
        }
    };
    follow(shared, run, reader).await
}

/// Returns the response when the service has responded. If the run has already ended, and the first
/// item of the response is an error, returns this error instead, because the service call itself
/// may have failed.
async fn follow(
    shared: Arc<Shared>,
    run: RunKey,
    mut reader: HubReader,
) -> Result<ChatResponse, BoxError> {
    let (phase, attempt) = reader.responded().await;
    let (attempt, hub) = match phase {
        Phase::Elsewhere { attempt } => (attempt, None),
        Phase::Beginning | Phase::Calling | Phase::Responding | Phase::Ended { .. } => {
            (attempt, Some(reader))
        }
    };
    let after = UpdatePosition::before_attempt(attempt);
    let mut updates = Box::pin(response(Follower::new(shared, run, after, hub), attempt));
    if let Phase::Responding | Phase::Elsewhere { .. } = phase {
        return Ok(ChatResponse::forward(updates));
    }
    match updates.next().await {
        Some(Err(error)) => Err(error),
        first => Ok(ChatResponse::forward(stream::iter(first).chain(updates))),
    }
}
