//! One service call of a run: its request, its answer during the stream, and the next step. A
//! persister is a layer below the loop that stores the messages of each service call.

use std::{future::poll_fn, sync::Arc};

use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatUpdate, EndedBy, Finish, Message, TruncatedStream,
};

use super::{
    loop_run::{LoopRun, Phase, Reading},
    options::{after_first_call, with_tools, without_tools},
    stop::{is_answered, unless_stopped, unless_stopped_in_call},
    transcript::{Outgoing, without_sentinel},
};
use crate::{
    PersistenceError,
    chat_service::ChatService,
    next_step::{CallRules, LoopPolicy, MAX_PAUSES, NextStep},
    run::{Persister, ServiceCall, keep_pending_calls, number_message, persisted},
    tool::Tools,
    yielding::yield_if_large,
};

impl<S: ChatService> LoopRun<S> {
    pub(super) async fn call(&mut self) -> Result<(), BoxError> {
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
        if context.handle.is_stopped() {
            return self.stop_before_call().await;
        }
        self.take_queued();
        let request = self.next_request();
        let (service, run, counters) = (&mut self.service, &self.run, &self.counters);
        let is_persister = run.log().persister == Persister::ToolLoop;
        let called = async {
            match is_persister {
                true => persisted(service, run, request).await,
                false => service.call(request).await.map_err(Into::into),
            }
        };
        let is_answered = || is_answered(run, counters);
        let response = unless_stopped_in_call(&context.handle, called, is_answered).await;
        self.find_persister();
        let Some(response) = response else {
            return self.stop_call(Vec::new()).await;
        };
        let response = response?;
        after_first_call(&mut self.options);
        if self.counters.service_calls == 1 {
            self.run.check_persister()?;
        }
        match response.try_into_answer() {
            Ok(Answer { messages, finish, .. }) => {
                let messages = messages
                    .into_iter()
                    .map(|message| number_message(&self.run, message))
                    .inspect(|message| self.updates.push_back(ChatUpdate::Message(message.clone())))
                    .collect();
                self.answered(messages, finish)?;
            }
            Err(response) => {
                let messages = Vec::new();
                let text = String::new();
                let reading = Reading { response, messages, text, holds_updates: false };
                self.phase = Phase::Reading(reading);
            }
        }
        Ok(())
    }

    pub(super) async fn read(&mut self, mut reading: Reading) -> Result<(), BoxError> {
        let (handle, run, counters) = (&self.context.handle, &self.run, &self.counters);
        let (next, is_answered) = (reading.response.next(), || is_answered(run, counters));
        let Some(update) = unless_stopped_in_call(handle, next, is_answered).await else {
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
                let message = number_message(&self.run, message);
                let has_calls = message.calls().next().is_some();
                reading.holds_updates |= has_calls && self.tools.any_needs_approval();
                reading.text.clear();
                reading.messages.push(message.clone());
                if has_calls {
                    // Not only at the end of the answer, because an answer that never ends must
                    // also be refused.
                    self.loop_policy().check(&reading.messages, self.context.conversation())?;
                }
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

impl<S> LoopRun<S> {
    pub(super) fn take_queued(&mut self) {
        let queued = self.context.handle.take_queued();
        for message in &queued {
            self.add_message(message.clone());
        }
        self.queued_in_flight = queued;
    }

    pub(super) fn next_request(&mut self) -> ChatRequest {
        let tools = self.settings.source.tools();
        if !tools.is_same(&self.tools) {
            self.run.log().call_records.hooks.use_tools(&tools);
            self.tools = tools;
        }
        let options = if self.is_last_call() {
            self.tools = Tools::new();
            without_tools(&self.options)
        } else {
            with_tools(&self.options, &self.tools)
        };
        let Outgoing { messages, history_len, history_owner } = self.transcript.outgoing();
        let mut request = ChatRequest::default().with_options(options);
        request.set_messages(messages, history_len);
        request.history_owner = history_owner;
        if let Some(call) = self.extensions.get_mut::<ServiceCall>() {
            call.ordinal = self.counters.service_calls;
        }
        request.extensions = self.extensions.clone();
        // With this policy, a persister below determines the next step, and stores it together with
        // the answer.
        self.run.log().loop_policy = Some(self.loop_policy());
        self.counters.service_calls += 1;
        request
    }

    pub(super) fn loop_policy(&self) -> LoopPolicy {
        LoopPolicy {
            tools: self.tools.clone(),
            options: self.options.clone(),
            settings: self.settings.clone(),
            is_last_call: self.is_last_call(),
            pauses_left: MAX_PAUSES.saturating_sub(self.counters.pauses),
            tool_calls: self.counters.tool_calls,
            handle: self.context.handle.clone(),
        }
    }

    /// Returns whether the run has reached its maximum number of rounds, so that the model must
    /// answer without tools.
    pub(super) fn is_last_call(&self) -> bool {
        self.settings.max_rounds.is_some_and(|max| self.counters.rounds >= max.get())
    }

    /// Decides the next step after a complete response, or refuses a response with too many calls.
    pub(super) fn answered(
        &mut self,
        messages: Vec<Arc<Message>>,
        mut finish: Box<Finish>,
    ) -> Result<(), BoxError> {
        if !self.is_stored_answer() {
            // The limit is not for a stored answer, which contains the calls of all rounds of its
            // run.
            self.loop_policy().check(&messages, self.context.conversation())?;
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
                "the run has reached its limit of rounds of tool calls: its last service call had no tools"
            );
        }
        for message in &messages {
            self.transcript.push_sent(message);
        }
        self.run.log().call_records.hooks.pin_answer(&messages);
        if self.is_stored_answer() {
            // The calls without results were returned to the caller, or not run because a tool had
            // ended the run.
            self.phase = Phase::Finishing(finish);
            return Ok(());
        }
        let step = self.stored_step(&messages);
        self.phase = match step.unwrap_or_else(|| self.loop_policy().next_step(&messages)) {
            NextStep::CallAgain => Phase::Calling,
            NextStep::ContinuePaused => {
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

    /// Logs, once per run, that the service's format required changes of stored messages.
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
            "the service does not accept the conversation as it is stored: the request contains some messages in \
             another form"
        );
    }

    /// Returns the next step that the persister below has stored, unless a layer in between has
    /// changed the answer.
    pub(super) fn stored_step(&self, answer: &[Arc<Message>]) -> Option<NextStep> {
        let ordinal = self.counters.service_calls.checked_sub(1)?;
        self.run.log().calls.step_after(ordinal, answer)
    }

    pub(super) fn is_stored_answer(&self) -> bool {
        self.run.log().answer.is_some()
    }

    /// Replaces the calls of a response by approval requests, also in the queue of updates. Returns
    /// an error if the `persist` hook of a tool does not allow one of the calls to be stored,
    /// because it could then not run after its approval.
    pub(super) fn ask(
        &mut self,
        messages: Vec<Arc<Message>>,
        finish: &Finish,
    ) -> Result<Vec<Arc<Message>>, PersistenceError> {
        let asking = self.rules().request_approvals(messages);
        if self.run.store().is_some() {
            // The answer in the error is empty, because `with_added` adds the messages of the run,
            // including this response.
            keep_pending_calls(&self.run, &asking, || Answer::new(Vec::new(), finish.clone()))?;
        }
        // The messages are at the end of the queue, because the caller has not received the
        // messages with calls yet.
        let given = self.updates.iter_mut().rev().filter_map(|update| match update {
            ChatUpdate::Message(message) => Some(message),
            _ => None,
        });
        for (given, asking) in given.zip(asking.iter().rev()) {
            *given = asking.clone();
        }
        Ok(asking)
    }

    pub(super) fn rules(&self) -> CallRules<'_> {
        CallRules {
            tools: &self.tools,
            callers_tools: &self.options.tools,
            unknown_tools: self.settings.unknown_tools,
        }
    }
}
