//! The service of the layer below the tool loop.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use tower_chat_core::{Answer, BoxError, ChatRequest, ChatResponse, Conversation, is_history_lost};
use tower_service::Service;

use super::PerServiceCallPersistence;
use crate::{
    PersistenceError, PersistenceMode, ResponseFuture,
    chat_service::ChatService,
    layers_below::{LayerKind, report_readiness_poll},
    run::{
        BegunBy, Persister, Run, begin_lone_run, check_recorded, persisted, repeated_answer,
        restart_run, run_of_layer_above, run_of_persister_above, run_without_store, store_run,
        summarize_before,
    },
    tool::RunAncestry,
};

/// The service that [`PerServiceCallPersistence`] creates.
#[derive(Debug, Clone)]
pub struct PerServiceCallPersistenceService<S> {
    inner: S,
    layer: Arc<PerServiceCallPersistence>,
}

impl<S> PerServiceCallPersistenceService<S> {
    tower_chat_core::__inner_service_accessors!(S);

    pub(super) fn new(inner: S, layer: PerServiceCallPersistence) -> Self {
        Self { inner, layer: Arc::new(layer) }
    }
}

impl<S> Service<ChatRequest> for PerServiceCallPersistenceService<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        report_readiness_poll(LayerKind::PerServiceCallPersistence);
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        ResponseFuture::new(per_service_call(ready, request, self.layer.clone()))
    }
}

async fn per_service_call<S: ChatService>(
    mut service: S,
    mut request: ChatRequest,
    layer: Arc<PerServiceCallPersistence>,
) -> Result<ChatResponse, BoxError> {
    if let Some(run) = run_of_persister_above(&request) {
        if run.log().persister == Persister::ToolLoop {
            // The tool loop could not find this layer, and stores the run itself.
            return service.call(request).await.map_err(Into::into);
        }
        return Err(PersistenceError::LayerTwice { layer: LAYER }.into());
    }
    let (run, answer, again) = match run_of_layer_above(&request) {
        Some(run) => (run.clone(), None, None),
        None => {
            RunAncestry::check(&request)?;
            let sent = request.clone();
            // Boxed, because the future of every service call would otherwise contain this rarely
            // used future.
            let (run, answer) = Box::pin(lone_run(&layer, &mut request)).await?;
            if answer.is_none() {
                summarize_before(&mut service, &layer.settings, &run, &request).await?;
            }
            let is_kept_by_service = run.log().service_id_before_answer().is_some();
            (run, answer, is_kept_by_service.then(|| Box::new(sent)))
        }
    };
    let own_store = layer.settings.store.handle();
    if !run.store().is_some_and(|store| store.handle().is_same_store(own_store)) {
        return Err(PersistenceError::DifferentStores { key: run.key().clone() }.into());
    }
    run.log().persister.note_layer();
    if let Some(answer) = answer {
        return Ok(answer.into());
    }
    let ended = persisted(&mut service, &run, request).await;
    match (ended, again) {
        (Err(error), Some(request)) if is_history_lost(&*error) => {
            Box::pin(call_with_record(service, &layer, run, *request, error)).await
        }
        (ended, _) => ended,
    }
}

/// Repeats a service call with the stored messages, if the policy allows it. `lost` is the error of
/// the service that has lost the history. Only valid if no layer above has begun the run.
async fn call_with_record<S: ChatService>(
    mut service: S,
    layer: &PerServiceCallPersistence,
    run: Run,
    mut request: ChatRequest,
    lost: BoxError,
) -> Result<ChatResponse, BoxError> {
    let service_id = run.log().service_id_before_answer();
    let Some(service_id) = service_id else { return Err(lost) };
    let conversation = run.conversation().clone();
    check_recorded(&layer.settings, &conversation, service_id, lost).await?;
    request.history_owner = None;
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    let begin = begin_alone(layer, conversation, &mut request, true);
    let answer = restart_run(&run, begin).await?;
    run.log().persister.note_layer();
    if let Some(answer) = answer {
        return Ok(answer.into());
    }
    summarize_before(&mut service, &layer.settings, &run, &request).await?;
    persisted(&mut service, &run, request).await
}

const LAYER: &str = "PerServiceCallPersistence";

/// Returns the run of a service call if no layer above the tool loop has begun a run, and the
/// stored answer if the run was complete. All service calls of a tool loop of this crate share one
/// run. Under a tool loop of another crate, each service call begins a run of its own.
async fn lone_run(
    layer: &PerServiceCallPersistence,
    request: &mut ChatRequest,
) -> Result<(Run, Option<Answer>), PersistenceError> {
    let Some(conversation) = request.conversation().cloned() else {
        return Err(PersistenceError::NoConversation { layer: LAYER });
    };
    let of_loop = request.extensions.get::<Run>().cloned();
    // A layer in between may have copied the extensions of a request of another conversation.
    let is_it = |run: &Run| run.store().is_none() || *run.conversation() == conversation;
    let of_loop = of_loop.filter(is_it);
    let of_call = || run_without_store(conversation.clone(), BegunBy::OtherLoop);
    let run = of_loop.unwrap_or_else(of_call);
    let answer = store_run(&run, begin_alone(layer, conversation, request, false)).await?;
    Ok((run, answer))
}

async fn begin_alone(
    layer: &PerServiceCallPersistence,
    conversation: Conversation,
    request: &mut ChatRequest,
    sends_record: bool,
) -> Result<(Run, Option<Answer>), PersistenceError> {
    let mode = match request.extensions.get() {
        Some(PersistenceMode::PerRun) => "per-run",
        Some(PersistenceMode::Journaled) => "journaled",
        Some(PersistenceMode::PerServiceCall) | None => {
            let run = begin_lone_run(&layer.settings, conversation, request, sends_record).await?;
            let answer = repeated_answer(&run, request)?;
            return Ok((run, answer));
        }
    };
    Err(PersistenceError::RunMissing { key: conversation.key, mode })
}
