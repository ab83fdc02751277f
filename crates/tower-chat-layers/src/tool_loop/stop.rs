//! Ends a run in its current state after a call of [`RunHandle::stop`].

use std::{pin::pin, sync::Arc};

use futures_util::future::{Either, select};
use tower_chat_core::{BoxError, ChatUpdate, EndedBy, Finish, Message, RunHandle, ToolStatus};

use super::{
    counters::RunCounters,
    execute::result,
    loop_run::{LoopRun, Phase, Reading},
    outcomes::Outcomes,
};
use crate::{
    next_step::{Action, NextStep, PlannedCall, Refusal},
    replay::INTERRUPTED,
    run::{BegunBy, CallOutcome, Event, Run, number_message, partial_message, unanswered_calls},
    tool::{PendingCall, ToolOutput, ToolReport},
};

pub(super) async fn unless_stopped<F: Future>(handle: &RunHandle, future: F) -> Option<F::Output> {
    match select(pin!(future), pin!(handle.stopped())).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Returns the output of a future that waits for a service call, or `None` if the run is stopped
/// before the call is answered.
pub(super) async fn unless_stopped_in_call<F: Future>(
    handle: &RunHandle,
    future: F,
    is_answered: impl Fn() -> bool,
) -> Option<F::Output> {
    let mut future = pin!(future);
    if let Either::Left((output, _)) = select(&mut future, pin!(handle.stopped())).await {
        return Some(output);
    }
    if is_answered() { Some(future.await) } else { None }
}

/// Returns whether the answer of the service call in flight was stored or submitted. The call must
/// then not be dropped, because only its response reports a failure of the write.
pub(super) fn is_answered(run: &Run, counters: &RunCounters) -> bool {
    let ordinal = counters.service_calls.checked_sub(1);
    ordinal.is_some_and(|ordinal| run.log().calls.has_answer(ordinal))
}

/// Refuses the calls whose tools have not started.
pub(super) fn refuse_stopped(calls: &mut [PlannedCall]) {
    for call in calls {
        if let Action::Run(_) = call.action {
            call.action = Action::Refuse(Refusal::Stopped);
        }
    }
}

impl Outcomes {
    /// Adds results for the calls of a batch (the calls of one answer) that have no outcome because
    /// the run was stopped. A call whose tool has started may or may not have run.
    pub(super) fn stop(&mut self, batch: &[PendingCall]) {
        let answered = self.answered();
        for (index, pending) in batch.iter().enumerate() {
            if answered.contains(&index) {
                continue;
            }
            let started_at = self.started.started_at(index);
            let (output, status) = match started_at {
                None => (Refusal::Stopped.output(pending.name()), ToolStatus::Stopped),
                Some(_) => (ToolOutput::error(INTERRUPTED), ToolStatus::Interrupted),
            };
            let report = ToolReport { started_at, ..ToolReport::not_run(status) };
            self.results.push((index, result(pending, output), report));
        }
    }
}

impl<S> LoopRun<S> {
    /// Stops before a service call, and stores the messages that the call would have sent.
    pub(super) async fn stop_before_call(&mut self) -> Result<(), BoxError> {
        let unsent = self.transcript.take_unsent();
        self.end_stopped(unsent, Vec::new()).await
    }

    /// Stops while a response is read. Stores its complete messages and the text after them. The
    /// calls in these messages are returned to the caller, or become approval requests.
    pub(super) async fn stop_reading(&mut self, reading: Reading) -> Result<(), BoxError> {
        let Reading { response, mut messages, text, .. } = reading;
        drop(response);
        if let NextStep::AskApproval = self.rules().step_after(&messages, |_| false) {
            messages = self.ask(messages, &Finish::default())?;
        }
        if !text.is_empty() {
            let partial = number_message(&self.run, Arc::new(partial_message(&text)));
            self.updates.push_back(ChatUpdate::Message(partial.clone()));
            messages.push(partial);
        }
        self.stop_call(messages).await
    }

    /// Stops after the service call in flight was dropped. `answer` is the received part of its
    /// answer.
    pub(super) async fn stop_call(&mut self, answer: Vec<Arc<Message>>) -> Result<(), BoxError> {
        let mut in_flight = self.transcript.take_in_flight();
        let unsubmitted = self.unsubmitted_inputs().unwrap_or(in_flight.len());
        // A persister that makes a summary has not received the call yet.
        let is_stored_below =
            self.transcript.is_kept_below() || self.run.begun_by() == BegunBy::ToolLoop;
        let unsent = match is_stored_below {
            true => in_flight.split_off(in_flight.len().saturating_sub(unsubmitted)),
            false => Vec::new(),
        };
        self.end_stopped(unsent, answer).await
    }

    /// Adds results for the calls that an earlier attempt (execution of the run) has left without
    /// results. Without them, a replay of the ended run would omit the calls, although their tools
    /// may have run.
    async fn answer_interrupted(&mut self) -> Result<(), BoxError> {
        for (index, (pending, row)) in unanswered_calls(&self.run).await?.into_iter().enumerate() {
            let (result, report) = match CallOutcome::of(&row) {
                CallOutcome::Finished(finished) => *finished,
                // This mode does not record that a tool has started.
                CallOutcome::NeverStarted
                | CallOutcome::Started(_)
                | CallOutcome::WithoutArguments(_) => {
                    let report = ToolReport::not_run(ToolStatus::Interrupted);
                    let result = result(&pending, ToolOutput::error(INTERRUPTED));
                    (result, ToolReport { started_at: row.started_at, ..report })
                }
            };
            self.outcomes.results.push((index, result, report));
        }
        self.add_results();
        Ok(())
    }

    async fn end_stopped(
        &mut self,
        mut unsent: Vec<Arc<Message>>,
        answer: Vec<Arc<Message>>,
    ) -> Result<(), BoxError> {
        if unsent.is_empty() && answer.is_empty() {
            self.answer_interrupted().await?;
            unsent = self.transcript.take_unsent();
        }
        self.queued_in_flight.clear();
        let mut finish = Finish::default();
        finish.usage = self.counters.usage;
        finish.ended_by = Some(EndedBy::Stop);
        // The claims of approved calls are not withdrawn, because the following write stores the
        // results of these calls.
        self.run.log().approved_calls.forget_claims();
        self.run.write(Event::Stopped { unsent, answer }).await?;
        finish.saved = self.run.store().map(|_| self.run.log().saved());
        self.phase = Phase::Finishing(Box::new(finish));
        Ok(())
    }
}
