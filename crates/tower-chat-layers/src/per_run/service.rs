//! The service of the layer above the tool loop.

use std::{
    future::poll_fn,
    ops::ControlFlow,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::SystemTime,
};

use futures_util::{StreamExt, stream};
use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Conversation, Message, Messages, Role,
    RunHandle, is_history_lost,
    store::{StoreError, author::Slot},
};
use tower_service::Service;

use super::{
    PerRunPersistence,
    admission::{RunAdmission, admit, to_foreground},
    open_run::clear_open_run,
};
use crate::{
    PersistenceError, PersistenceMode, ResponseFuture,
    chat_service::ChatService,
    ending::{Ending, with_ending},
    layers_below::{LayerKind, report_readiness_poll},
    policy::{JournalPolicy, RunEnd},
    recovery::ResumesRun,
    refusal::is_before_service,
    run::{
        BegunBy, Event, LeaveCause, Run, RunParameters, ServiceCall, Settings, WritePoint,
        answered_before, begin_run, check_recorded, complete_run, end_unanswered, head_of,
        last_answer, open_request, run_of_layer_above, stored_answer, strip_sentinel,
        summarize_before, write_beside,
    },
    telemetry::report_mode,
    tool::RunAncestry,
    tool_loop::check_approvals,
    wait_without_permit::wait_without_permit,
    yielding::yield_if_large,
};

const LAYER: &str = "PerRunPersistence";

/// The service that [`PerRunPersistence`] creates.
#[derive(Debug, Clone)]
pub struct PerRunPersistenceService<S> {
    inner: S,
    layer: Arc<PerRunPersistence>,
}

impl<S> PerRunPersistenceService<S> {
    tower_chat_core::__inner_service_accessors!(S);

    pub(super) fn new(inner: S, layer: PerRunPersistence) -> Self {
        Self { inner, layer: Arc::new(layer) }
    }
}

impl<S> Service<ChatRequest> for PerRunPersistenceService<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        report_readiness_poll(LayerKind::PerRunPersistence);
        self.layer.below.poll_ready(&mut self.inner, cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        let arrived_at = layer.settings.clock.now();
        ResponseFuture::new(per_run(ready, request, layer, arrived_at))
    }
}

async fn per_run<S: ChatService>(
    mut service: S,
    mut request: ChatRequest,
    layer: Arc<PerRunPersistence>,
    arrived_at: SystemTime,
) -> Result<ChatResponse, BoxError> {
    let mode = request.extensions.get::<PersistenceMode>().copied().unwrap_or(layer.mode);
    report_mode(&request, mode);
    let conversation = check(&request, &layer, mode)?;
    let admitted = pin!(admit(&layer.settings, conversation));
    let (conversation, mut admission) = wait_without_permit(&mut service, admitted).await?;
    request.extensions.insert(conversation.clone());
    if request.extensions.get::<ResumesRun>().is_some() {
        to_foreground(&mut request);
    }
    let found = (&conversation, mode);
    let cleared = clear_open_run(&mut service, &layer, &request, found, arrived_at);
    let (head, recovered) = cleared.await?;
    admission.recovered = recovered;
    let begun = RunParameters { conversation, mode, head, arrived_at, sends_record: false };
    execute_run(&mut service, &layer, request, begun, Some(admission)).await
}

/// Checks the conversation of the request and the order of the layers.
fn check(
    request: &ChatRequest,
    layer: &PerRunPersistence,
    mode: PersistenceMode,
) -> Result<Conversation, BoxError> {
    if run_of_layer_above(request).is_some() {
        return Err(PersistenceError::LayerTwice { layer: LAYER }.into());
    }
    let Some(conversation) = request.conversation().cloned() else {
        return Err(PersistenceError::NoConversation { layer: LAYER }.into());
    };
    if request.extensions.get::<ServiceCall>().is_some() {
        return Err(PersistenceError::BelowToolLoop { key: conversation.key, layer: LAYER }.into());
    }
    RunAncestry::check(request)?;
    // Before the input of a journaled run is staged (stored, but not yet visible in the history).
    let lacks_persister = layer.below.holds(LayerKind::ToolLoop)
        && !layer.below.holds(LayerKind::PerServiceCallPersistence);
    if lacks_persister && !request.options.is_background() {
        layer.settings.policy.without_persister(&conversation.key, mode)?;
    }
    Ok(conversation)
}

/// Executes one run that no other run blocks. If the service has lost the history of the
/// conversation, a second attempt may send the stored messages.
pub(super) async fn execute_run<S: ChatService>(
    service: &mut S,
    layer: &PerRunPersistence,
    request: ChatRequest,
    parameters: RunParameters,
    admission: Option<RunAdmission>,
) -> Result<ChatResponse, BoxError> {
    let is_kept_by_service = parameters.head.service_id.is_some()
        || request.history_owner.as_ref().is_some_and(|owner| owner.service_id().is_some());
    let again = is_kept_by_service.then(|| (request.clone(), parameters.clone()));
    let lost = match attempt(service, layer, request, parameters, admission).await? {
        Ok(response) => return Ok(response),
        Err(lost) => lost,
    };
    let Some((mut request, parameters)) = again else { return Err(lost.error) };
    let conversation = &parameters.conversation;
    let HistoryLostInRun { error, service_id, admission } = lost;
    let settings = &layer.settings;
    check_recorded(settings, conversation, service_id, error).await?;
    request.history_owner = None;
    let head = head_of(settings, &conversation.key).await?;
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    let parameters = RunParameters { head, sends_record: true, ..parameters };
    attempt(service, layer, request, parameters, admission).await?.map_err(|lost| lost.error)
}

/// A run whose first service call was refused because the service has lost the history.
struct HistoryLostInRun {
    error: BoxError,
    service_id: Arc<str>,
    admission: Option<RunAdmission>,
}

/// Executes an attempt at a run. The inner error reports that the service has lost the history.
async fn attempt<S: ChatService>(
    service: &mut S,
    layer: &PerRunPersistence,
    mut request: ChatRequest,
    parameters: RunParameters,
    admission: Option<RunAdmission>,
) -> Result<Result<ChatResponse, HistoryLostInRun>, BoxError> {
    let settings = &layer.settings;
    yield_if_large(request.messages().iter_from(request.history_len())).await;
    let run = begin_run(settings, parameters, &mut request, BegunBy::LayerAbove).await?;
    let mut opened = OpenedRun { run: run.clone(), admission, cause: LeaveCause::Disconnected };
    let begun = begin_call(service, settings, &run, request, &mut opened).await;
    let BegunCall { request, stored, slot } = match begun {
        Ok(ControlFlow::Continue(begun)) => begun,
        Ok(ControlFlow::Break(stored)) => return Ok(Ok(stored.into())),
        Err(error) => {
            opened.cause = LeaveCause::Failed;
            return Err(error);
        }
    };
    let handle = request.extensions.get::<RunHandle>().cloned();
    let response = service.call(request).await.map_err(Into::into);
    let lost = match &response {
        Err(error) if is_history_lost(&**error) => run.log().service_id_before_answer(),
        _ => None,
    };
    let admission = lost.as_ref().and_then(|_| opened.admission.take());
    let own_loop = layer.own_loop.clone();
    let ending = RunEnding { slot, stored_count: stored.len(), handle, own_loop, opened };
    let ended =
        with_ending(response.map(|response| after_stored_messages(stored, response)), ending).await;
    match (ended, lost) {
        (Err(error), Some(service_id)) => {
            Ok(Err(HistoryLostInRun { error, service_id, admission }))
        }
        (ended, _) => Ok(Ok(ended?)),
    }
}

/// A run that has begun, with the request for the inner service.
struct BegunCall {
    request: ChatRequest,
    /// The messages of the answer that an earlier attempt has stored.
    stored: Vec<Arc<Message>>,
    /// The slot (a reserved entry in the store's queue) for the write at the end of the run. `None`
    /// if the run is stored earlier.
    slot: Option<Result<Slot, StoreError>>,
}

/// Begins a run. Returns `Break` with the stored answer if the run is complete.
async fn begin_call<S: ChatService>(
    service: &mut S,
    settings: &Settings,
    run: &Run,
    request: ChatRequest,
    opened: &mut OpenedRun,
) -> Result<ControlFlow<Answer, BegunCall>, BoxError> {
    if let Some(mut answer) = last_answer(run) {
        opened.report(&mut answer);
        return Ok(ControlFlow::Break(answer));
    }
    if let Some(mut answer) = stored_answer(run, &request)? {
        run.write(Event::FoundComplete { answer: answer.messages.clone() }).await?;
        opened.report(&mut answer);
        return Ok(ControlFlow::Break(answer));
    }
    // A run that was committed before its final answer is not gone: the history contains its
    // messages, and this request continues the run.
    let is_gone = opened.admission.is_none() || !run.log().has_stored();
    if request.extensions.get::<ResumesRun>().is_some() && !run.log().is_resumed() && is_gone {
        let (key, run) = (run.key().clone(), run.id());
        return Err(PersistenceError::RunGone { key, run }.into());
    }
    if settings.policy.summarize.is_some() && !run.log().has_stored() {
        // A request with invalid decisions makes no service call for a summary.
        let input: Messages = run.log().conversation.input(&request).into_iter().collect();
        check_approvals(run, &ChatRequest::new(input).in_run(run.conversation().clone()))?;
    }
    summarize_before(service, settings, run, &request).await?;
    let stored = answered_before(run, &request);
    yield_if_large(request.messages().iter_from(request.history_len())).await;
    let (request, input) = open_request(run, request)?;
    yield_if_large(&input).await;
    // Before the input of a journaled run is staged, because a run with invalid decisions would
    // remain open.
    check_approvals(run, &request)?;
    // Before the paid request to the model.
    let slot = match run.write_point() {
        WritePoint::End => Some(wait_without_permit(service, pin!(run.reserve())).await?),
        WritePoint::EachCall => None,
    };
    wait_without_permit(service, pin!(write_beside(run, Event::Begun { input }))).await?;
    Ok(ControlFlow::Continue(BegunCall { request, stored, slot }))
}

/// Returns the response after the messages of the answer that an earlier attempt has stored.
fn after_stored_messages(stored: Vec<Arc<Message>>, response: ChatResponse) -> ChatResponse {
    if stored.is_empty() {
        return response;
    }
    match response.try_into_answer() {
        Ok(mut answer) => {
            answer.messages.splice(..0, stored);
            answer.into()
        }
        Err(response) => {
            let stored = stream::iter(stored).map(|message| Ok(ChatUpdate::Message(message)));
            ChatResponse::forward(stored.chain(response))
        }
    }
}

struct RunEnding {
    /// The slot for the write at the end of the run. `None` if the run is stored earlier.
    slot: Option<Result<Slot, StoreError>>,
    /// The number of messages of the answer from an earlier attempt.
    stored_count: usize,
    handle: Option<RunHandle>,
    /// Whether the layer has logged that the answer of the client's own tool loop lacks tool calls
    /// and results. `None` if the client has no such loop.
    own_loop: Option<Arc<AtomicBool>>,
    opened: OpenedRun,
}

/// A run that has begun. Dropping this value makes an incomplete run available to a later attempt,
/// and lets the next run in the queue begin.
struct OpenedRun {
    run: Run,
    admission: Option<RunAdmission>,
    cause: LeaveCause,
}

impl OpenedRun {
    fn report(&mut self, answer: &mut Answer) {
        let Some(admission) = &mut self.admission else { return };
        answer.finish.branch.clone_from(&admission.branch);
        answer.finish.recovered = admission.recovered.take();
    }
}

impl Drop for OpenedRun {
    fn drop(&mut self) {
        self.run.note(Event::Left { cause: self.cause });
    }
}

impl Ending for RunEnding {
    fn passes_messages_early(&self) -> bool {
        true
    }

    async fn complete(mut self, answer: Answer) -> Result<Answer, PersistenceError> {
        let run = self.opened.run.clone();
        if let Some(is_warned) = &self.own_loop
            && run.mode() == PersistenceMode::PerRun
            && hides_rounds(&run, &answer)
            && !is_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                conversation = %run.key(),
                "the history contains only the final answer of the client's own tool loop, because its answer does \
                 not contain the messages of all rounds: put PerServiceCallPersistence below that loop, or return the \
                 messages of all rounds in its answer"
            );
        }
        // If the store refuses the single write of a run, its messages from the queue return to the
        // queue.
        let handle = self.handle.filter(|_| run.write_point() == WritePoint::End);
        let queued = handle.as_ref().map(|_| queued_messages_of(&run, &answer, self.stored_count));
        match store_complete_run(&run, self.slot, self.stored_count, answer).await {
            Ok(mut answer) => {
                answer.finish.saved = Some(run.log().saved());
                answer.finish.usage += run.log().take_usage_of_summaries();
                self.opened.report(&mut answer);
                Ok(answer)
            }
            Err(error) => {
                if let (Some(handle), Some(queued)) = (handle, queued) {
                    handle.put_back(queued);
                }
                self.opened.cause = LeaveCause::Failed;
                Err(error)
            }
        }
    }

    async fn fail(mut self, error: &BoxError) {
        self.opened.cause = LeaveCause::Failed;
        let run = &self.opened.run;
        let policy = &run.policy().journal;
        end_unanswered(run, |attempt| end_of_unanswered(policy, error, attempt)).await;
    }
}

/// Returns the end that the policy requires for a run that has failed before the first answer.
/// `None` if the run remains open.
fn end_of_unanswered(policy: &JournalPolicy, error: &BoxError, attempt: u32) -> Option<RunEnd> {
    let is_wrong_stack = matches!(error.downcast_ref(), Some(PersistenceError::LayerTwice { .. }));
    if is_wrong_stack && attempt == 1 {
        // The first attempt could not execute the run, because the order of the layers is wrong.
        return Some(RunEnd::Discard);
    }
    let end = policy.on_refusal.end(false).filter(|_| policy.is_refusal(&**error, attempt))?;
    Some(if is_before_service(&**error) { RunEnd::Discard } else { end })
}

/// Returns the messages of the answer from the run's queue, except those of tools, which run again
/// and queue them again.
fn queued_messages_of(run: &Run, answer: &Answer, stored_count: usize) -> Vec<Message> {
    let of_run = answer.messages.iter().skip(stored_count);
    let is_queued = |message: &&Arc<Message>| {
        let is_of_tool = || message.id.is_some_and(|id| run.log().queued_by_tools.contains(&id));
        !matches!(message.role, Role::Assistant | Role::Tool) && !is_of_tool()
    };
    let queued = of_run.filter(is_queued);
    let without_id = |message: &Arc<Message>| {
        let mut message = (**message).clone();
        message.id = None;
        message
    };
    queued.map(without_id).collect()
}

/// Returns whether a tool loop below may have run tools without reporting the calls and results to
/// a persistence layer or in its answer.
fn hides_rounds(run: &Run, answer: &Answer) -> bool {
    let has_rounds = answer.messages.iter().any(|message| message.role == Role::Tool);
    !has_rounds && !run.log().has_seen_rounds()
}

/// Stores the messages of a complete run that are not stored yet. The first `stored_count`
/// messages of the answer are from an earlier attempt.
async fn store_complete_run(
    run: &Run,
    slot: Option<Result<Slot, StoreError>>,
    stored_count: usize,
    mut answer: Answer,
) -> Result<Answer, PersistenceError> {
    strip_sentinel(&mut answer);
    // A tool loop of another crate does not check that the stack contains a
    // `PerServiceCallPersistence`.
    let mut now = answer.messages.iter().skip(stored_count);
    if now.any(|message| message.role == Role::Assistant) {
        run.check_persister()?;
    }
    complete_run(run, slot.unwrap_or_else(|| Ok(Slot::unbounded())), answer, stored_count).await
}
