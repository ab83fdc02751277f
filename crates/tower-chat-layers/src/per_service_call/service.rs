//! The service of the layer.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Conversation, HistoryOwner, Message,
    is_history_lost,
};
use tower_service::Service;

use super::PerServiceCallPersistence;
use crate::{
    PersistenceError, PersistenceMode, ResponseFuture,
    ending::{Ending, with_ending},
    layers_below::{LayerKind, report_readiness_poll},
    run::{
        AskedAgain, OpenCall, PersisterAbove, Run, RunOfLoop, StartedCall, begin_lone_run,
        check_recorded, observe_answer, observe_round, repeated_answer, restart_run,
        run_without_store, start_call, store_run,
    },
    tool::RunAncestry,
    yielding::yield_if_large,
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

async fn per_service_call<S>(
    mut service: S,
    mut request: ChatRequest,
    layer: Arc<PerServiceCallPersistence>,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    if request.extensions.get::<PersisterAbove>().is_some() {
        return Err(PersistenceError::LayerTwice { layer: LAYER }.into());
    }
    let (run, answer, again) = match request.extensions.get::<Run>() {
        Some(run) => (run.clone(), None, None),
        None => {
            RunAncestry::check(&request)?;
            let sent = request.clone();
            // Boxed, because the future of every other service call would otherwise reserve the memory
            // for it.
            let (run, answer) = Box::pin(lone_run(&layer, &mut request)).await?;
            let is_kept_by_service = run.log().service_id_before_answer().is_some();
            (run, answer, is_kept_by_service.then(|| Box::new(sent)))
        }
    };
    let own_store = layer.settings.store.handle();
    if !run.store().is_some_and(|store| store.handle().is_same_store(own_store)) {
        return Err(PersistenceError::DifferentStores { key: run.key().clone() }.into());
    }
    run.log().has_persister = true;
    if let Some(answer) = answer {
        return Ok(answer.into());
    }
    if run.is_written_at_end() {
        if request.history_owner == Some(HistoryOwner::Local) {
            request.history_owner = None;
        }
        observe_round(&run, &mut request);
        request.extensions.insert(PersisterAbove);
        let asked = AskedAgain { service: &mut service, run: &run };
        let response = asked.call(request).await;
        return with_ending(response, ObservedCall(run)).await;
    }
    let ended = call_once(&mut service, &run, request).await;
    match (ended, again) {
        (Err(error), Some(request)) if is_history_lost(&*error) => {
            Box::pin(call_with_record(service, &layer, run, *request, error)).await
        }
        (ended, _) => ended,
    }
}

/// Makes a service call whose messages are stored when it ends.
async fn call_once<S>(
    service: &mut S,
    run: &Run,
    mut request: ChatRequest,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    yield_if_large(request.messages().iter_from(request.history_len())).await;
    // A separate statement, because the future would otherwise contain the error across the next
    // awaits.
    let started = start_call(run, &mut request)?;
    match started {
        StartedCall::Answered(call) => Ok(call.durable().await?.into()),
        StartedCall::Call(mut call) => {
            call.reserve().await?;
            yield_if_large(call.inputs()).await;
            let response = AskedAgain { service, run }.call(request).await;
            with_ending(response, call).await
        }
    }
}

/// Makes a service call again with the stored messages, if the policy allows it. `lost` is the error of a
/// service that no longer has the history of the conversation. No layer above has begun the run.
async fn call_with_record<S>(
    mut service: S,
    layer: &PerServiceCallPersistence,
    run: Run,
    mut request: ChatRequest,
    lost: BoxError,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    let service_id = run.log().service_id_before_answer();
    let Some(service_id) = service_id else { return Err(lost) };
    let conversation = run.conversation().clone();
    check_recorded(&layer.settings, &conversation, service_id, lost).await?;
    request.history_owner = None;
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    let begin = begin_alone(layer, conversation, &mut request, true);
    let answer = restart_run(&run, begin).await?;
    run.log().has_persister = true;
    if let Some(answer) = answer {
        return Ok(answer.into());
    }
    call_once(&mut service, &run, request).await
}

const LAYER: &str = "PerServiceCallPersistence";

/// Returns the run of a service call if no layer above the tool loop has begun one, and its answer if
/// the run was complete before. A tool loop of this crate has one run, which its first service call
/// begins. Under a tool loop of another crate, each service call has its own run.
async fn lone_run(
    layer: &PerServiceCallPersistence,
    request: &mut ChatRequest,
) -> Result<(Run, Option<Answer>), PersistenceError> {
    let Some(conversation) = request.conversation().cloned() else {
        return Err(PersistenceError::NoConversation { layer: LAYER });
    };
    let of_loop = request.extensions.get::<RunOfLoop>().map(|RunOfLoop(run)| run.clone());
    // A layer may send other requests with the extensions of this one.
    let is_it = |run: &Run| run.store().is_none() || *run.conversation() == conversation;
    let of_loop = of_loop.filter(is_it);
    let run = of_loop.unwrap_or_else(|| run_without_store(conversation.clone()));
    let answer = store_run(&run, begin_alone(layer, conversation, request, false)).await?;
    Ok((run, answer))
}

async fn begin_alone(
    layer: &PerServiceCallPersistence,
    conversation: Conversation,
    request: &mut ChatRequest,
    sends_record: bool,
) -> Result<(Run, Option<Answer>), PersistenceError> {
    match request.extensions.get::<PersistenceMode>() {
        Some(PersistenceMode::PerRun) => {
            Err(PersistenceError::RunMissing { key: conversation.key, mode: "per-run" })
        }
        Some(PersistenceMode::Journaled) => {
            Err(PersistenceError::RunMissing { key: conversation.key, mode: "journaled" })
        }
        Some(PersistenceMode::PerServiceCall) | None => {
            let run = begin_lone_run(&layer.settings, conversation, request, sends_record).await?;
            let answer = repeated_answer(&run, request)?;
            Ok((run, answer))
        }
    }
}

/// The end of a service call whose run is stored at its end by a layer above. This layer compares
/// service ids, and records the rounds of a tool loop of another crate. Messages are passed on before
/// the end of the answer, so that the tool loop can refuse an endless one.
struct ObservedCall(Run);

impl Ending for ObservedCall {
    const PASSES_MESSAGES_EARLY: bool = true;

    async fn complete(self, answer: Answer) -> Result<Answer, PersistenceError> {
        observe_answer(&self.0, &answer)?;
        Ok(answer)
    }

    async fn fail(self, _error: &BoxError) {}
}

impl Ending for Box<OpenCall> {
    const PASSES_MESSAGES_EARLY: bool = false;

    fn record_update(&mut self, update: &ChatUpdate) {
        OpenCall::record_update(self, update);
    }

    fn check(&self, answer: &[Arc<Message>]) -> Result<(), BoxError> {
        Ok(OpenCall::check(self, answer)?)
    }

    async fn complete(self, answer: Answer) -> Result<Answer, PersistenceError> {
        OpenCall::complete(self, answer).await
    }

    async fn fail(self, error: &BoxError) {
        OpenCall::fail(self, error).await;
    }
}
