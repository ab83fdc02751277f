//! One run of the loop: service call, tools, service call, tools, ..., answer.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    sync::Arc,
};

use futures_util::{StreamExt, stream};
use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, EndedBy, Finish,
    Message, MessageId, Messages, RunId, TruncatedStream,
};
use tower_service::Service;

use super::{
    ToolLoopError, approvals,
    counters::RunCounters,
    error::CallNotRun,
    execute::{Executor, Outcomes},
    in_flight::InFlight,
    options::CallOptions,
    resume,
    settings::Settings,
    stop::{refuse_stopped, unless_stopped, unless_stopped_in_call},
    transcript::{Outgoing, Transcript, without_sentinel},
};
use crate::{
    Clock, PersistenceError,
    layers_below::{LayerKind, LayersBelow},
    next_step::{
        Action, CallCount, CallRules, LoopPolicy, NextStep, PlannedCall, Refusal, TooManyCalls,
    },
    policy::UnknownCalls,
    replay::{Citations, Replay},
    run::{
        CallOutcome, InterruptedRun, PersisterAbove, Run, RunOfLoop, ServiceCall, is_without_calls,
    },
    tool::{CallOfRun, PendingCall, RunContext, SourceNumbers, Tools},
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
    service: S,
    /// The service has promised to take the next call.
    is_ready: bool,
    settings: Arc<Settings>,
    options: CallOptions,
    context: Arc<RunContext>,
    /// The run's.
    pub(super) clock: Clock,
    /// The persistence layers' part in this, if they are there.
    pub(super) run: Option<Run>,
    /// Where a persister below puts the run that it begins, if nobody has begun one above.
    pub(super) run_of_loop: Option<RunOfLoop>,
    /// What each service call carries besides its messages.
    extensions: http::Extensions,
    pub(super) transcript: Transcript,
    /// The tools that the model was told about last.
    tools: Tools,
    pub(super) phase: Phase,
    /// What the run has added, where it is written at its end.
    added: Vec<Arc<Message>>,
    /// What the caller has not been given yet.
    pub(super) updates: VecDeque<ChatUpdate>,
    outcomes: Outcomes,
    pub(super) has_unsent_results: bool,
    pub(super) in_flight: InFlight,
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
    calls: CallCount,
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
    fn new(
        ready: S,
        settings: Arc<Settings>,
        has_persister: bool,
        mut request: ChatRequest,
    ) -> Result<Self, BoxError> {
        let handle = request.run_handle();
        let conversation = request.conversation();
        let run_id = conversation.map_or_else(RunId::new, |conversation| conversation.run);
        let run = request.extensions.get::<Run>().cloned();
        let transcript = match &run {
            Some(run) if !run.is_written_at_end() => {
                Transcript::only_unsent(&request, run_id, || run.taken())
            }
            Some(run) => {
                let replay = run.open_replay().unwrap_or_else(Replay::lenient);
                Transcript::whole(&request, run_id, replay).numbered_from(run.answer_from())
            }
            None => Transcript::whole(&request, run_id, Replay::lenient()),
        };
        let tools = settings.source.tools();
        let run_of_loop = (run.is_none() && conversation.is_some()).then(RunOfLoop::default);
        use_tools(run.as_ref(), run_of_loop.as_ref(), &tools);
        let rules = CallRules {
            tools: &tools,
            callers_tools: &request.options.tools,
            unknown_tools: settings.unknown_tools,
        };
        let Approved { calls: approved, refused } =
            approved(&request, run.as_ref(), &transcript, &rules)?;
        let approves = !approved.is_empty() || !refused.is_empty();
        if let (false, true, Some(run)) = (has_persister, approves, &run) {
            // Their calls are in a history that no layer would put before their results.
            return Err(run.persister_missing().into());
        }
        let interrupted = run.as_ref().and_then(Run::take_interrupted);
        let mut counters = match &interrupted {
            Some(interrupted) => RunCounters::resumed(interrupted, &approved),
            None => RunCounters::default(),
        };
        let phase = if !refused.is_empty() {
            Phase::Refusing(refused)
        } else if approved.is_empty() {
            Phase::Calling
        } else {
            let calls = counters.charged(approved, settings.call_budget);
            Phase::Running { calls, finish: Box::default() }
        };
        request.extensions.remove::<ServiceCall>();
        let mut extensions = request.extensions.clone();
        extensions.insert(ServiceCall { ordinal: 0 });
        if let Some(run_of_loop) = &run_of_loop {
            extensions.insert(run_of_loop.clone());
        }
        let unknown_calls = request.extensions.get::<UnknownCalls>().cloned();
        let mut rounds = Self {
            service: ready,
            is_ready: true,
            options: CallOptions::new(request.options, settings.options.clone()),
            settings,
            context: Arc::new(RunContext {
                run: run_id,
                handle,
                extensions: request.extensions,
                source_numbers: source_numbers(run.clone(), run_of_loop.clone(), request.messages),
            }),
            clock: run.as_ref().map(Run::clock).unwrap_or_default(),
            run,
            run_of_loop,
            extensions,
            transcript,
            tools,
            phase,
            added: Vec::new(),
            updates: VecDeque::new(),
            outcomes: Outcomes::default(),
            has_unsent_results: false,
            in_flight: InFlight::default(),
            counters,
        };
        if let Some(interrupted) = interrupted {
            rounds.resume(interrupted, unknown_calls)?;
        }
        Ok(rounds)
    }

    /// Goes on where an earlier attempt at the run was interrupted.
    fn resume(
        &mut self,
        interrupted: InterruptedRun,
        unknown_calls: Option<UnknownCalls>,
    ) -> Result<(), ToolLoopError> {
        let InterruptedRun { response, calls: known, .. } = interrupted;
        for message in &response {
            // What comes next is numbered on from it.
            let message = self.transcript.number(message.clone(), &self.clock);
            self.transcript.push_sent(&message);
        }
        if response.is_empty() {
            return Ok(());
        }
        if let Some(run) = &self.run {
            run.pin_calls(&response);
        }
        let finish = Box::default();
        let is_settled = |pending: &PendingCall| {
            let known = pending.position().and_then(|position| known.get(&position));
            matches!(known, Some(CallOutcome::Finished(_)))
        };
        self.phase = match self.rules().step_after(&response, is_settled) {
            NextStep::RunTools(calls) => {
                let mut calls = self.counters.charged(calls, self.settings.call_budget);
                self.settle(&mut calls, &known, unknown_calls)?;
                Phase::Running { calls, finish }
            }
            // What it asked for is not known any more: the model is asked again.
            NextStep::Finish if response.last().is_some_and(|last| is_without_calls(last)) => {
                Phase::Calling
            }
            NextStep::CallAgain => Phase::Calling,
            NextStep::AskApproval | NextStep::ReturnCalls | NextStep::Finish => {
                Phase::Finishing(finish)
            }
        };
        Ok(())
    }

    fn settle(
        &self,
        calls: &mut [PlannedCall],
        known: &HashMap<CallOfRun, CallOutcome>,
        unknown_calls: Option<UnknownCalls>,
    ) -> Result<(), ToolLoopError> {
        let Some(run) = &self.run else { return Ok(()) };
        let policy = unknown_calls.unwrap_or_else(|| run.unknown_calls());
        resume::settle(calls, known, &policy, (run.key(), run.id()))
    }

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

    /// Records that approved calls were not run, and fails. With the record the refusal is known to
    /// every later run, which tells the model.
    async fn refuse(&mut self, calls: &[PlannedCall]) -> Result<(), BoxError> {
        if let Some(run) = self.run.clone() {
            let outcomes = calls.iter().filter_map(PlannedCall::refusal_for_changed_arguments);
            for outcome in outcomes.collect::<Vec<_>>() {
                run.tool_finished(outcome, Vec::new(), None, false).await?;
            }
            run.discard_input().await;
        }
        let calls = calls.iter().map(|call| CallNotRun {
            tool: call.pending.name().to_owned(),
            call_id: call.pending.id().to_owned(),
        });
        let conversation = self.run.as_ref().map(|run| run.key().clone());
        Err(ToolLoopError::ArgumentsNotKept { calls: calls.collect(), conversation }.into())
    }

    async fn call(&mut self) -> Result<(), BoxError> {
        let context = self.context.clone();
        yield_if_large(self.transcript.unsent()).await;
        if !std::mem::take(&mut self.is_ready) {
            let ready = poll_fn(|cx| self.service.poll_ready(cx));
            let ready = unless_stopped(&context.handle, ready).await;
            let Some(ready) = ready.map(|ready| ready.map_err(Into::into)) else {
                return self.stop_before_call().await;
            };
            ready?;
        }
        self.take_queued();
        let request = self.next_request();
        let called = self.service.call(request);
        let response = unless_stopped_in_call(&context.handle, called, self.call_under_way()).await;
        self.find_run();
        let Some(response) = response.map(|response| response.map_err(Into::into)) else {
            return self.stop_call(Vec::new()).await;
        };
        let response = response?;
        self.options.after_first_call();
        if let (1, Some(run)) = (self.counters.service_calls, &self.run) {
            run.check_persister()?;
        }
        match response.try_into_answer() {
            Ok(Answer { messages, finish, .. }) => {
                // A stored answer holds the calls of all rounds of its run.
                let mut calls = (!self.is_stored_answer()).then(|| self.call_count());
                for message in &messages {
                    if let Some(calls) = &mut calls {
                        self.too_many(calls.take(message))?;
                    }
                }
                let messages = messages
                    .into_iter()
                    .map(|message| self.transcript.number(message, &self.clock))
                    .inspect(|message| self.updates.push_back(ChatUpdate::Message(message.clone())))
                    .collect();
                self.answered(messages, finish)?;
            }
            Err(response) => {
                let messages = Vec::new();
                let text = String::new();
                let calls = self.call_count();
                let reading = Reading { response, messages, calls, text, is_held: false };
                self.phase = Phase::Reading(reading);
            }
        }
        Ok(())
    }

    fn take_queued(&mut self) {
        let queued = self.context.handle.take_queued();
        for message in &queued {
            self.add(message.clone());
        }
        self.in_flight.queued = queued;
    }

    fn next_request(&mut self) -> ChatRequest {
        let tools = self.settings.source.tools();
        if !tools.is_same(&self.tools) {
            use_tools(self.run.as_ref(), self.run_of_loop.as_ref(), &tools);
            self.tools = tools;
        }
        let options = if self.is_last_call() {
            self.tools = Tools::new();
            self.options.without_tools()
        } else {
            self.options.with_tools(&self.tools)
        };
        let Outgoing { messages, new_from, conversation_id } = self.transcript.outgoing();
        self.in_flight.has_results = std::mem::take(&mut self.has_unsent_results)
            && self.submits_results()
            && self.run.as_ref().is_some_and(Run::keeps_results_of_failed_call);
        if self.transcript.is_kept_below() || self.run_of_loop.is_some() {
            self.in_flight.messages = messages.skip(new_from);
        }
        let mut request = ChatRequest::new(messages).with_options(options);
        request.new_from = new_from;
        request.conversation_id = conversation_id;
        if let Some(call) = self.extensions.get_mut::<ServiceCall>() {
            call.ordinal = self.counters.service_calls;
        }
        request.extensions = self.extensions.clone();
        if self.run.as_ref().is_none_or(|run| !run.is_written_at_end()) {
            // A persister below stores with the answer what follows it, or that nothing does.
            request.extensions.insert(self.loop_policy());
        }
        self.counters.service_calls += 1;
        request
    }

    fn loop_policy(&self) -> LoopPolicy {
        LoopPolicy {
            tools: self.tools.clone(),
            options: self.options.callers(),
            unknown_tools: self.settings.unknown_tools,
            is_last_call: self.is_last_call(),
            concurrent: self.settings.concurrent,
            max_calls_per_answer: self.settings.max_calls_per_answer,
            call_budget: self.settings.call_budget,
            tool_calls: self.counters.tool_calls(),
            handle: self.context.handle.clone(),
        }
    }

    /// A count of the calls of the next answer.
    fn call_count(&self) -> CallCount {
        CallCount::up_to(self.settings.max_calls_per_answer)
    }

    /// Whether all rounds are used up, so that the model must answer without tools.
    fn is_last_call(&self) -> bool {
        self.settings.max_rounds.is_some_and(|most| self.counters.rounds >= most.get())
    }

    async fn read(&mut self, mut reading: Reading) -> Result<(), BoxError> {
        let (handle, next) = (&self.context.handle, reading.response.next());
        let Some(update) = unless_stopped_in_call(handle, next, self.call_under_way()).await else {
            return self.stop_reading(reading).await;
        };
        let update = match update {
            Some(Ok(update)) => update,
            Some(Err(error)) => return Err(error),
            None => return Err(TruncatedStream::default().into()),
        };
        match update {
            ChatUpdate::Finish(finish) => {
                return self.answered(reading.messages, finish);
            }
            ChatUpdate::Message(message) => {
                self.too_many(reading.calls.take(&message))?;
                let message = self.transcript.number(message, &self.clock);
                let has_calls = message.calls().next().is_some();
                reading.is_held |= has_calls && self.tools.any_needs_approval();
                reading.text.clear();
                reading.messages.push(message.clone());
                self.updates.push_back(ChatUpdate::Message(message));
            }
            delta => {
                if let ChatUpdate::TextDelta(text) = &delta {
                    reading.text.push_str(text);
                }
                self.updates.push_back(delta);
            }
        }
        self.phase = Phase::Reading(reading);
        Ok(())
    }

    /// Decides what follows a complete response.
    ///
    /// # Errors
    ///
    /// If the run is written at its end, and the response says that the service keeps the history
    /// although a store does: no tool runs, and no further call is paid for.
    fn answered(
        &mut self,
        messages: Vec<Arc<Message>>,
        mut finish: Box<Finish>,
    ) -> Result<(), BoxError> {
        if let Some(run) = &self.run {
            let answer = || Answer::new(messages.clone(), Finish::clone(&finish));
            run.check_service_id(&finish, answer)?;
        }
        self.in_flight = InFlight::default();
        self.counters.usage += finish.usage;
        finish.usage = self.counters.usage;
        self.transcript.answered(finish.conversation_id.clone());
        finish.conversation_id = without_sentinel(finish.conversation_id);
        if self.is_last_call() {
            finish.ended_by = Some(EndedBy::RoundLimit);
            tracing::warn!(
                conversation = self.context.conversation().map(tracing::field::display),
                rounds = self.counters.rounds,
                "the rounds of tool calls that a run may have are used up: its last answer is one \
                 for which the model had no tools"
            );
        }
        for message in &messages {
            self.transcript.push_sent(message);
            self.note_added(message);
        }
        if let Some(run) = &self.run {
            run.pin_calls(&messages);
        }
        if self.is_stored_answer() {
            // Its open calls were left to the caller, or not run because a tool had ended the run.
            self.phase = Phase::Finishing(finish);
            return Ok(());
        }
        let step = self.stored_step(&messages);
        self.phase = match step.unwrap_or_else(|| self.loop_policy().next_step(&messages)) {
            NextStep::CallAgain => Phase::Calling,
            NextStep::RunTools(calls) => {
                self.counters.rounds += 1;
                self.counters.count_calls(&calls);
                Phase::Running { calls, finish }
            }
            NextStep::ReturnCalls | NextStep::Finish => Phase::Finishing(finish),
            NextStep::AskApproval => {
                self.ask(messages, &finish)?;
                Phase::Finishing(finish)
            }
        };
        Ok(())
    }

    /// What the persister below has decided, and stored, to follow this answer. An answer that a
    /// layer between has changed is not the one that was stored.
    fn stored_step(&self, answer: &[Arc<Message>]) -> Option<NextStep> {
        let ordinal = self.counters.service_calls.checked_sub(1)?;
        self.run.as_ref()?.step_after(ordinal, answer)
    }

    fn too_many(&self, counted: Result<(), TooManyCalls>) -> Result<(), ToolLoopError> {
        counted.map_err(|too_many| too_many.in_conversation(self.context.conversation()))
    }

    /// Whether the persister below has answered with the stored answer of a run that was complete
    /// before this request.
    fn is_stored_answer(&self) -> bool {
        self.run_of_loop.as_ref().is_some_and(RunOfLoop::is_answered)
    }

    async fn run_tools(
        &mut self,
        calls: Vec<PlannedCall>,
        mut finish: Box<Finish>,
    ) -> Result<(), BoxError> {
        if std::mem::take(&mut self.is_ready) {
            // A tool may call the same service; so the permit that this clone holds is released.
            self.service = self.service.clone();
        }
        let context = self.context.clone();
        let batch: Vec<_> = calls.iter().map(|call| call.pending.clone()).collect();
        let executor = Executor {
            settings: &self.settings,
            context: &self.context,
            clock: &self.clock,
            run: self.run.as_ref(),
            round_index: self.counters.batches,
        };
        self.counters.batches += 1;
        let executed = executor.execute(calls, &mut self.outcomes);
        match unless_stopped(&context.handle, executed).await {
            Some(executed) => executed?,
            None => {
                let begun = if self.settings.concurrent { batch.len() } else { 1 };
                self.outcomes.stop(&batch, begun);
            }
        }
        let failures = self.outcomes.take_failures();
        self.counters.failed(
            failures,
            self.settings.max_failing_rounds,
            self.context.conversation(),
        )?;
        self.add_results();
        self.phase = if !self.outcomes.terminate() {
            Phase::Calling
        } else {
            finish.ended_by = Some(EndedBy::Tool);
            if self.counters.rounds > 0 || self.records_each_outcome() {
                // They go to the caller, and no service call will have seen them. What of them
                // is part of the history the commit decides.
                self.has_unsent_results = false;
                if let Some(run) = self.run.as_ref().filter(|run| run.is_alone()) {
                    // Nobody above does it at the end of the run.
                    let unsent: Vec<_> = self.transcript.take_unsent().iter().cloned().collect();
                    run.finish_alone(&unsent).await;
                }
            } else {
                // Their calls were stored by another run, which would ask for them again.
                self.submit_results();
            }
            Phase::Finishing(finish)
        };
        Ok(())
    }
}

impl<S> Rounds<S> {
    /// Gives the response on with its calls as requests for approval.
    ///
    /// # Errors
    ///
    /// If one of the calls could not be run later, because a hook keeps nothing of it.
    pub(super) fn ask(
        &mut self,
        messages: Vec<Arc<Message>>,
        finish: &Finish,
    ) -> Result<Vec<Arc<Message>>, PersistenceError> {
        let asking = self.rules().request_approvals(messages);
        if let Some(run) = &self.run {
            // What the run has added is put before the error's answer, this response included.
            run.keep_pending_calls(&asking, || Answer::new(Vec::new(), finish.clone()))?;
        }
        // The response's messages are the last there are, and those with calls were held back.
        let given = self.updates.iter_mut().rev().filter_map(|update| match update {
            ChatUpdate::Message(message) => Some(message),
            _ => None,
        });
        for (given, asking) in given.zip(asking.iter().rev()) {
            *given = asking.clone();
        }
        Ok(asking)
    }

    /// Who answers the calls of an answer.
    pub(super) fn rules(&self) -> CallRules<'_> {
        CallRules {
            tools: &self.tools,
            callers_tools: self.options.callers_tools(),
            unknown_tools: self.settings.unknown_tools,
        }
    }

    /// Adds a message that did not come from the model.
    fn add(&mut self, message: Message) -> Option<MessageId> {
        let message = self.transcript.number(Arc::new(message), &self.clock);
        self.transcript.push_unsent(&message);
        self.note_added(&message);
        let id = message.id;
        self.updates.push_back(ChatUpdate::Message(message));
        id
    }

    /// Keeps what the run has added so far where nobody below does.
    fn note_added(&mut self, message: &Arc<Message>) {
        if self.run.as_ref().is_some_and(Run::is_written_at_end) {
            self.added.push(message.clone());
        }
    }

    /// The error that ends the run. Where its answer was refused and nothing of the run is stored,
    /// the answer in the error begins with what the run had added before, results of tools
    /// included: they are nowhere else.
    fn with_added(&mut self, mut error: BoxError) -> BoxError {
        let refused = error.downcast_mut().and_then(PersistenceError::answer_mut);
        if let Some(answer) = refused {
            // Queued messages that only the refused call carried go back into their queue.
            let count = self.added.len().saturating_sub(self.in_flight.queued.len());
            answer.messages.splice(..0, self.added.drain(..count));
        }
        error
    }

    fn add_results(&mut self) {
        let Some((message, reports)) = self.outcomes.take_message() else { return };
        self.has_unsent_results = true;
        let id = self.add(message);
        if let (Some(run), Some(id)) = (&self.run, id) {
            run.report_tools(id, reports);
        }
    }

    /// Looks whether a persister below has begun the run: from then on it is this loop's.
    fn find_run(&mut self) {
        let Some(run) = self.run_of_loop.as_ref().and_then(RunOfLoop::run) else { return };
        if self.run.is_none() {
            self.run = Some(run.clone());
            self.clock = run.clock();
            self.transcript.keep_below();
        }
    }

    /// Ends the run where it stands: what reached nobody goes back to where it came from.
    fn give_up(&mut self) {
        // Whoever is below is done with the call under way before the loop looks.
        self.phase = Phase::Ended;
        self.find_run();
        if let Some(ordinal) = self.counters.service_calls.checked_sub(1) {
            let in_flight = std::mem::take(&mut self.in_flight);
            in_flight.give_back(ordinal, self.run.as_ref(), &self.context.handle);
        }
        if self.submits_results() {
            self.submit_results();
        }
    }

    /// Whether results of tools that have run, and that no service call has brought to a persister
    /// below, are handed to its run. A journal has them already, one by one.
    fn submits_results(&self) -> bool {
        self.transcript.is_kept_below() && !self.records_each_outcome()
    }

    fn records_each_outcome(&self) -> bool {
        self.run.as_ref().is_some_and(Run::records_each_outcome)
    }

    fn submit_results(&mut self) {
        if !self.transcript.is_kept_below() {
            return;
        }
        self.add_results();
        if let (true, Some(run)) = (std::mem::take(&mut self.has_unsent_results), &self.run) {
            run.submit_results(self.transcript.take_unsent().iter().cloned().collect());
        }
    }
}

impl<S> Drop for Rounds<S> {
    /// Whatever ended the run, tools that have finished are not run again for it.
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The numbers of the sources that the run's tools find, after those of the conversation: as the run
/// has loaded it, else as the request brought it.
fn source_numbers(
    run: Option<Run>,
    run_of_loop: Option<RunOfLoop>,
    messages: Messages,
) -> SourceNumbers {
    SourceNumbers::from(move || {
        let begun_below = || run_of_loop.as_ref().and_then(RunOfLoop::run);
        match run.as_ref().or_else(begun_below) {
            Some(run) => run.next_source_number(&messages),
            None => Citations::default().next_number(&messages),
        }
    })
}

/// Names the tools for their hooks to the run, or to whoever will begin it.
fn use_tools(run: Option<&Run>, run_of_loop: Option<&RunOfLoop>, tools: &Tools) {
    match (run, run_of_loop) {
        (Some(run), _) => run.use_tools(tools),
        (None, Some(run_of_loop)) => run_of_loop.use_tools(tools),
        (None, None) => {}
    }
}

/// Whether the layers that the run needs are below, as far as polling for readiness shows; checked
/// before the model is paid and before any tool runs, approved ones included.
///
/// # Errors
///
/// If a persistence layer is on the wrong side of the loop, or if nothing below would store the run and the policy is to
/// fail then.
async fn check_layers<S>(
    ready: &mut S,
    settings: &Settings,
    below: &LayersBelow,
    request: &ChatRequest,
) -> Result<bool, BoxError>
where
    S: Service<ChatRequest>,
    S::Error: Into<BoxError>,
{
    let conversation = key_of(request);
    if request.extensions.get::<PersisterAbove>().is_some() {
        return Err(ToolLoopError::PersisterAbove { conversation }.into());
    }
    if below.holds(LayerKind::PerRunPersistence) {
        return Err(ToolLoopError::PerRunPersistenceBelow { conversation }.into());
    }
    let run = request.extensions.get::<Run>().filter(|run| !run.is_written_at_end());
    let Some(run) = run.filter(|_| !settings.assumes_persister_below) else { return Ok(true) };
    if !below.holds(LayerKind::PerServiceCallPersistence) {
        // Its caller may have left out to poll it.
        poll_fn(|cx| below.poll_ready(ready, cx)).await.map_err(Into::into)?;
    }
    let has_persister = below.holds(LayerKind::PerServiceCallPersistence);
    if !has_persister && run.fails_without_persister() {
        return Err(run.persister_missing().into());
    }
    Ok(has_persister)
}

/// The waiting calls that a request answers.
#[derive(Default)]
struct Approved {
    calls: Vec<PlannedCall>,
    /// Those of them that cannot be run with what is stored, and of which no record says so yet.
    /// Nothing of the batch runs until one does.
    refused: Vec<PlannedCall>,
}

/// The waiting calls that the request's own messages decide about: stored ones, and ones among
/// them. What is known of them already is not run again.
fn approved(
    request: &ChatRequest,
    run: Option<&Run>,
    transcript: &Transcript,
    rules: &CallRules<'_>,
) -> Result<Approved, ToolLoopError> {
    let sent = transcript.pending_batches(request);
    let mut calls = approvals::decide(request, run, sent, Some(rules))?;
    if let (Some(run), false) = (run, calls.is_empty()) {
        let mut known = HashMap::new();
        let mut refused = Vec::new();
        for call in &calls {
            let Some(position) = call.pending.position() else { continue };
            let mut of_call = run.known_approved(position);
            if matches!(call.action, Action::Run(_)) && run.has_changed_arguments(position) {
                if of_call.is_none() && !call.accepts_stored_arguments() {
                    refused.push(PlannedCall::run(call.pending.clone(), rules.tools));
                }
                of_call.get_or_insert(CallOutcome::NeverStarted).lose_arguments();
            }
            known.extend(of_call.map(|of_call| (position, of_call)));
        }
        if !refused.is_empty() {
            return Ok(Approved { calls: Vec::new(), refused });
        }
        let policy = request.extensions.get::<UnknownCalls>().cloned();
        let policy = policy.unwrap_or_else(|| run.unknown_calls());
        resume::settle(&mut calls, &known, &policy, (run.key(), run.id()))?;
        for call in &calls {
            match (&call.action, call.pending.position()) {
                (Action::Run(tool), Some(position)) => run.pin_tool(position, Some(tool.clone())),
                (Action::Refuse(Refusal::UnknownTool), Some(position)) => {
                    run.pin_tool(position, None);
                }
                (Action::Run(_) | Action::Refuse(_) | Action::Reuse(_), _) => {}
            }
        }
    }
    Ok(Approved { calls, refused: Vec::new() })
}

fn key_of(request: &ChatRequest) -> Option<ConversationKey> {
    request.conversation().map(|conversation| conversation.key.clone())
}
