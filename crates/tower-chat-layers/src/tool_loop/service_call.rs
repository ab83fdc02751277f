//! One service call of a run: the request, its answer as it arrives, and what follows.

use std::{future::poll_fn, sync::Arc};

use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, EndedBy, Finish, Message,
    TruncatedStream,
};
use tower_service::Service;

use super::{
    ToolLoopError,
    begin::use_tools,
    rounds::{Phase, Reading, Rounds},
    stop::{unless_stopped, unless_stopped_in_call},
    transcript::{Outgoing, without_sentinel},
};
use crate::{
    PersistenceError,
    next_step::{CallCount, CallRules, LoopPolicy, MAX_PAUSES, NextStep, TooManyCalls},
    run::{HistoryBefore, Run, RunOfLoop, ServiceCall},
    tool::Tools,
    yielding::yield_if_large,
};

impl<S> Rounds<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    pub(super) async fn call(&mut self) -> Result<(), BoxError> {
        let context = self.context.clone();
        yield_if_large(&self.transcript.unsent()).await;
        if !std::mem::take(&mut self.is_ready) {
            let ready = poll_fn(|cx| self.service.poll_ready(cx));
            let ready = unless_stopped(&context.handle, ready).await;
            let Some(ready) = ready.map(|ready| ready.map_err(Into::into)) else {
                return self.stop_before_call().await;
            };
            ready?;
        }
        if context.handle.is_stopped() {
            return self.stop_before_call().await;
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
            let was_complete = self.extensions.remove::<HistoryBefore>().is_some();
            if was_complete && run.log().has_persister() {
                // It could not be found before.
                self.transcript.keep_below();
            }
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

    pub(super) async fn read(&mut self, mut reading: Reading) -> Result<(), BoxError> {
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
}

impl<S> Rounds<S> {
    pub(super) fn take_queued(&mut self) {
        let queued = self.context.handle.take_queued();
        for message in &queued {
            self.add(message.clone());
        }
        self.queued_in_flight = queued;
    }

    pub(super) fn next_request(&mut self) -> ChatRequest {
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
        let Outgoing { messages, new_from, history_owner } = self.transcript.outgoing();
        let mut request = ChatRequest::new(messages).with_options(options);
        request.new_from = new_from;
        request.history_owner = history_owner;
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

    pub(super) fn loop_policy(&self) -> LoopPolicy {
        LoopPolicy {
            tools: self.tools.clone(),
            options: self.options.callers(),
            unknown_tools: self.settings.unknown_tools,
            is_last_call: self.is_last_call(),
            concurrent: self.settings.concurrent,
            max_calls_per_answer: self.settings.max_calls_per_answer,
            pauses_left: MAX_PAUSES.saturating_sub(self.counters.pauses),
            max_calls: self.settings.max_calls,
            tool_calls: self.counters.tool_calls(),
            handle: self.context.handle.clone(),
        }
    }

    /// A count of the calls of the next answer.
    pub(super) fn call_count(&self) -> CallCount {
        CallCount::up_to(self.settings.max_calls_per_answer)
    }

    /// Whether all rounds are used up, so that the model must answer without tools.
    pub(super) fn is_last_call(&self) -> bool {
        self.settings.max_rounds.is_some_and(|most| self.counters.rounds >= most.get())
    }

    /// Decides what follows a complete response.
    ///
    /// # Errors
    ///
    /// If the run is written at its end, and the response says that the service keeps the history
    /// although a store does: no tool runs, and no further call is paid for.
    pub(super) fn answered(
        &mut self,
        messages: Vec<Arc<Message>>,
        mut finish: Box<Finish>,
    ) -> Result<(), BoxError> {
        let observes = |run: &&Run| run.is_written_at_end() && !run.log().has_persister();
        if let Some(run) = self.run.as_ref().filter(observes) {
            run.observe_answer(&Answer::new(messages.clone(), Finish::clone(&finish)), true)?;
        }
        self.queued_in_flight.clear();
        self.counters.usage += finish.usage;
        finish.usage = self.counters.usage;
        self.log_changes(&finish);
        self.transcript.answered(finish.history_owner.clone());
        finish.history_owner = without_sentinel(finish.history_owner);
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
        }
        if let Some(run) = &self.run {
            run.log().pin_calls(&messages);
        }
        if self.is_stored_answer() {
            // Its open calls were left to the caller, or not run because a tool had ended the run.
            self.phase = Phase::Finishing(finish);
            return Ok(());
        }
        let step = self.stored_step(&messages);
        self.phase = match step.unwrap_or_else(|| self.loop_policy().next_step(&messages)) {
            NextStep::CallAgain => Phase::Calling,
            NextStep::GoOn => {
                self.counters.pauses += 1;
                Phase::Calling
            }
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

    /// Logs once in a run what the service was sent in another form than it is stored.
    fn log_changes(&mut self, finish: &Finish) {
        let Some(first) = finish.changes.first().filter(|_| !self.counters.has_logged_changes)
        else {
            return;
        };
        self.counters.has_logged_changes = true;
        tracing::info!(
            conversation = self.context.conversation().map(tracing::field::display),
            changes = finish.changes.len(),
            first = %first,
            "the service does not take the conversation as it is stored, so the request has some of \
             it in another form"
        );
    }

    /// What the persister below has decided, and stored, to follow this answer. An answer that a
    /// layer between has changed is not the one that was stored.
    pub(super) fn stored_step(&self, answer: &[Arc<Message>]) -> Option<NextStep> {
        let ordinal = self.counters.service_calls.checked_sub(1)?;
        self.run.as_ref()?.log().step_after(ordinal, answer)
    }

    pub(super) fn too_many(&self, counted: Result<(), TooManyCalls>) -> Result<(), ToolLoopError> {
        counted.map_err(|too_many| too_many.in_conversation(self.context.conversation()))
    }

    /// Whether the persister below has answered with the stored answer of a run that was complete
    /// before this request.
    pub(super) fn is_stored_answer(&self) -> bool {
        self.run_of_loop.as_ref().is_some_and(RunOfLoop::is_answered)
    }

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
}
