//! One run of the loop: service call, tools, service call, tools, ..., answer.

use std::{collections::VecDeque, sync::Arc};

use futures_util::stream;
use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message, MessageId, Role,
    TruncatedStream,
};
use tower_service::Service;

use super::{
    ToolLoopError, begin::check_layers, counters::RunCounters, options::CallOptions,
    outcomes::Outcomes, settings::Settings, stop::refuse_stopped, transcript::Transcript,
};
use crate::{
    Clock, PersistenceError,
    layers_below::LayersBelow,
    next_step::{CallCount, PlannedCall},
    run::{Event, Run, RunOfLoop},
    tool::{RunContext, Tools},
    validate::check_not_empty,
    yielding::yield_if_large,
};

/// Runs one request. The service is ready for the first service call.
pub(super) async fn run<S>(
    ready: S,
    settings: Arc<Settings>,
    below: Arc<LayersBelow>,
    request: ChatRequest,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    if request.extensions.get::<Run>().is_none() {
        check_not_empty(&request)?;
    }
    let mut ready = ready;
    let has_persister = check_layers(&mut ready, &settings, &below, &request).await?;
    let streamed = request.options.stream;
    let run = request.extensions.get::<Run>().cloned();
    yield_if_large(request.messages.iter_from(request.new_from)).await;
    let mut rounds = match Rounds::new(ready, settings, has_persister, request) {
        Ok(rounds) => rounds,
        Err(error) => {
            let keeps_run =
                matches!(error.downcast_ref(), Some(ToolLoopError::UnknownCalls { .. }));
            if let (Some(run), false) = (run, keeps_run) {
                run.discard_input().await;
            }
            return Err(error);
        }
    };
    if !streamed {
        return rounds.collect().await;
    }
    if let Err(error) = rounds.head().await {
        return Err(rounds.with_added(error));
    }
    if rounds.is_complete() {
        return rounds.collect().await;
    }
    let updates = stream::unfold(Box::new(rounds), |mut rounds| async move {
        let update = rounds.next().await?;
        Some((update, rounds))
    });
    Ok(ChatResponse::forward(updates))
}

/// A run under way: a source of updates that advances when it has none left to give.
pub(super) struct Rounds<S> {
    pub(super) service: S,
    /// The service has promised to take the next call.
    pub(super) is_ready: bool,
    pub(super) settings: Arc<Settings>,
    pub(super) options: CallOptions,
    pub(super) context: Arc<RunContext>,
    /// The run's.
    pub(super) clock: Clock,
    /// The persistence layers' part in this, if they are there.
    pub(super) run: Option<Run>,
    /// Where a persister below puts the run that it begins, if nobody has begun one above.
    pub(super) run_of_loop: Option<RunOfLoop>,
    /// What each service call carries besides its messages.
    pub(super) extensions: http::Extensions,
    pub(super) transcript: Transcript,
    /// The tools that the model was told about last.
    pub(super) tools: Tools,
    pub(super) phase: Phase,
    /// What the caller has not been given yet.
    pub(super) updates: VecDeque<ChatUpdate>,
    pub(super) outcomes: Outcomes,
    /// Queued messages, the last that the service call under way carries.
    pub(super) queued_in_flight: Vec<Message>,
    pub(super) counters: RunCounters,
}

/// What happens next.
pub(super) enum Phase {
    Calling,
    Reading(Reading),
    /// Approved calls are refused, and the run fails once the record says so.
    Refusing(Vec<PlannedCall>),
    Running {
        calls: Vec<PlannedCall>,
        finish: Box<Finish>,
    },
    Finishing(Box<Finish>),
    Ended,
}

/// A response that is still coming.
pub(super) struct Reading {
    pub(super) response: ChatResponse,
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) calls: CallCount,
    /// The text that has come since the last of them.
    pub(super) text: String,
    /// Nothing more is given on until the end: its calls may have to wait for approval, all of them
    /// or none.
    pub(super) is_held: bool,
}

impl<S> Rounds<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    /// The whole answer, once the run is complete.
    async fn collect(mut self) -> Result<ChatResponse, BoxError> {
        let mut messages = Vec::new();
        while let Some(update) = self.next().await {
            match update? {
                ChatUpdate::Message(message) => messages.push(message),
                ChatUpdate::Finish(finish) => return Ok(ChatResponse::whole(messages, finish)),
                _ => {}
            }
        }
        Err(TruncatedStream::default().into())
    }

    /// Advances until the first service call has answered, or the run ended without one.
    async fn head(&mut self) -> Result<(), BoxError> {
        while self.counters.service_calls == 0 && !self.is_complete() {
            self.advance().await?;
        }
        Ok(())
    }

    /// Whether nothing is left to be waited for.
    fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Finishing(_) | Phase::Ended)
    }

    async fn next(&mut self) -> Option<Result<ChatUpdate, BoxError>> {
        loop {
            if !matches!(self.phase, Phase::Reading(Reading { is_held: true, .. }))
                && let Some(update) = self.updates.pop_front()
            {
                return Some(Ok(update));
            }
            if self.is_complete() {
                return match std::mem::replace(&mut self.phase, Phase::Ended) {
                    Phase::Finishing(finish) => Some(Ok(ChatUpdate::Finish(finish))),
                    _ => None,
                };
            }
            if let Err(error) = self.advance().await {
                let error = self.with_added(error);
                self.give_up();
                self.updates.clear();
                return Some(Err(error));
            }
        }
    }

    /// One step; a step that fails ends the run.
    async fn advance(&mut self) -> Result<(), BoxError> {
        let is_stopped = self.context.handle.is_stopped();
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Calling if is_stopped => self.stop_before_call().await,
            Phase::Reading(reading) if is_stopped && !self.call_under_way().is_answered() => {
                self.stop_reading(reading).await
            }
            Phase::Running { mut calls, finish } if is_stopped => {
                refuse_stopped(&mut calls);
                self.run_tools(calls, finish).await
            }
            Phase::Calling => self.call().await,
            Phase::Reading(reading) => self.read(reading).await,
            Phase::Refusing(calls) => self.refuse(&calls).await,
            Phase::Running { calls, finish } => self.run_tools(calls, finish).await,
            phase @ (Phase::Finishing(_) | Phase::Ended) => {
                self.phase = phase;
                Ok(())
            }
        }
    }
}

impl<S> Rounds<S> {
    /// Adds a message that did not come from the model.
    pub(super) fn add(&mut self, message: Message) -> Option<MessageId> {
        let message = self.transcript.number(Arc::new(message), &self.clock);
        self.transcript.push_unsent(&message);
        let id = message.id;
        self.updates.push_back(ChatUpdate::Message(message));
        id
    }

    /// The error that ends the run. Where its answer was refused and nothing of the run is stored,
    /// the answer in the error begins with what the run had added before, results of tools
    /// included: they are nowhere else.
    pub(super) fn with_added(&mut self, mut error: BoxError) -> BoxError {
        let refused = error.downcast_mut().and_then(PersistenceError::answer_mut);
        if let Some(answer) = refused
            && self.run.as_ref().is_some_and(Run::is_written_at_end)
        {
            // Queued messages that only the refused call carried go back into their queue.
            let added = self.transcript.added();
            let count = added.len().saturating_sub(self.queued_in_flight.len());
            answer.messages.splice(..0, added.take(count).cloned());
        }
        error
    }

    /// Looks whether a persister below has begun the run: from then on it is this loop's.
    pub(super) fn find_run(&mut self) {
        let Some(run) = self.run_of_loop.as_ref().and_then(RunOfLoop::run) else { return };
        if self.run.is_none() {
            self.clock = run.clock();
            self.run = Some(run);
            self.transcript.keep_below();
        }
    }

    /// The service call under way comes to no answer: what the run has not taken in of it goes back to
    /// where it came from. The call must be over, so that the persister has stored what it keeps.
    fn give_back(&mut self) {
        let in_flight = self.transcript.take_in_flight();
        let mut queued = std::mem::take(&mut self.queued_in_flight);
        let left = self.left_of_call();
        let has_results = in_flight.iter().any(|message| message.role == Role::Tool);
        if let (Some(run), true, None) = (&self.run, has_results && self.submits_results(), left)
            && run.keeps_results_of_failed_call()
        {
            // No persister has seen the call.
            let count = in_flight.len().saturating_sub(queued.len());
            let messages = in_flight.into_iter().take(count).collect();
            run.note(Event::ResultsUnsent { messages });
        }
        if let Some(left) = left {
            queued.drain(..queued.len().saturating_sub(left));
        }
        self.context.handle.put_back(queued);
    }

    /// How many messages at the end of the last service call the run has not taken in; `None` if no
    /// persister has seen the call.
    pub(super) fn left_of_call(&self) -> Option<usize> {
        let ordinal = self.counters.service_calls.checked_sub(1)?;
        self.run.as_ref()?.log().left_of_call(ordinal)
    }

    /// Ends the run where it stands: what reached nobody goes back to where it came from.
    pub(super) fn give_up(&mut self) {
        // Whoever is below is done with the call under way before the loop looks.
        self.phase = Phase::Ended;
        self.find_run();
        self.give_back();
        let interrupted = self.outcomes.unfinished();
        if let Some(run) = &self.run {
            run.submit_unstored_outcomes();
        }
        if self.submits_results() {
            self.submit_results();
        }
        if let Some(run) = &self.run {
            run.note(Event::ToolsDropped { calls: interrupted });
            run.withdraw_claims();
        }
    }
}

impl<S> Drop for Rounds<S> {
    /// Whatever ended the run, tools that have finished are not run again for it.
    fn drop(&mut self) {
        self.give_up();
    }
}
