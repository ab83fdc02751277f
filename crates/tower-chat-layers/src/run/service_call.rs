//! A service call of a run: stores its new messages and its answer. A slot is an entry in the
//! bounded queue of the store, and is reserved before the call.

use std::sync::Arc;

use tower_chat_core::{
    Answer, BoxError, ChatOptions, ChatUpdate, EndedBy, HistoryOwner, Message,
    store::{
        StoreError,
        author::{Slot, Write},
    },
};

use super::{
    Run, RunLog, Submission, WritePoint,
    approvals::pending_call_not_kept,
    calls::Attempt,
    events::{Answered, Event},
    partial_text::StreamedText,
    recording::Adopted,
    refused_content::note_refused_inputs,
    service_id::adopt_answer,
    tool_events::reserve_beside,
    write::logged,
};
use crate::{
    PersistenceError, ToolLoopError, UnansweredInputs,
    approval::request_approvals_of,
    next_step::{LoopPolicy, NextStep, pending_calls},
    refusal::is_before_service,
    tool::{CallOfRun, PendingCall},
};

/// A service call in flight. If the service answers, one write stores the inputs and the answer. In
/// per-run mode, the write at the end of the run stores the inputs and the answer. If the call
/// fails or is dropped, the policy decides whether its inputs are stored.
pub(crate) struct OpenCall {
    run: Run,
    ordinal: Option<u32>,
    /// The new messages of the service call, with their ids.
    inputs: Vec<Arc<Message>>,
    options: Arc<ChatOptions>,
    /// The rules by which the tool loop decides the next step. `None` if the tool loop has not
    /// reported its policy.
    loop_policy: Option<LoopPolicy>,
    /// The streamed text of the answer, if the policy stores partial responses.
    streamed: Option<StreamedText>,
    progress: CallState,
}

/// The state of a service call.
enum CallState {
    /// The call waits for a slot in the store's queue. If the call is dropped in this state, its
    /// inputs are submitted without a reserved slot.
    Waiting,
    /// The service was called, and has not answered yet. If the reservation of the slot has failed,
    /// the write will fail with this error.
    InFlight(Result<Slot, StoreError>),
    /// The write of the call was submitted.
    Settled,
}

/// An answer whose messages were submitted.
pub(crate) struct StoredCall {
    pub(super) run: Run,
    pub(super) ordinal: Option<u32>,
    pub(super) answer: Answer,
    pub(super) submission: Submission,
}

impl OpenCall {
    /// Creates a call with these inputs, which must have their ids, and with the options of its
    /// request.
    pub(super) fn new(
        run: Run,
        ordinal: Option<u32>,
        inputs: Vec<Arc<Message>>,
        options: Arc<ChatOptions>,
        loop_policy: Option<LoopPolicy>,
    ) -> Self {
        // If no layer above the tool loop has begun the run, this layer does not learn when the run
        // ends. No later write could then store the text of a failed call.
        let keeps_text = run.policy().keep_partial_text && !run.log().is_alone;
        Self {
            run,
            ordinal,
            inputs,
            options,
            loop_policy,
            streamed: keeps_text.then(StreamedText::default),
            progress: CallState::Waiting,
        }
    }

    /// Waits for a slot in the store's queue. Called before the request to the model, so that the
    /// model causes no costs if the store accepts no writes.
    ///
    /// # Errors
    ///
    /// Returns an error if the reservation fails and the policy is to fail the call.
    pub(super) async fn reserve(&mut self) -> Result<(), PersistenceError> {
        match reserve_beside(&self.run).await {
            Ok(slot) => self.progress = CallState::InFlight(slot),
            Err(error) => {
                self.progress = CallState::Settled;
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the new messages of the service call.
    pub(crate) fn inputs(&self) -> &[Arc<Message>] {
        &self.inputs
    }

    /// Adds an update of the answer to the streamed text.
    pub(crate) fn record_update(&mut self, update: &ChatUpdate) {
        if let Some(streamed) = &mut self.streamed {
            streamed.record_update(update);
        }
    }

    /// Checks the number of calls in the answer against the limit of the tool loop.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer contains more calls than the loop allows.
    pub(crate) fn check(&self, answer: &[Arc<Message>]) -> Result<(), ToolLoopError> {
        let policy = self.loop_policy.as_ref();
        policy.map_or(Ok(()), |policy| policy.check(answer, Some(self.run.key())))
    }

    /// Submits the inputs and the answer in one write at the first poll of the future, and waits
    /// until this write is durable.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer lacks the run's service id, or has a service id that the
    /// policy does not allow. The answer is then not stored, and results of tools among the inputs
    /// are stored only in the record. Returns an error if a call waits for approval, but a hook
    /// does not allow the call to be stored. The inputs are then stored as for a failed call.
    /// Returns [`PersistenceError::NotStored`] with the answer if the write fails.
    pub(crate) async fn complete(
        self: Box<Self>,
        answer: Answer,
    ) -> Result<Answer, PersistenceError> {
        let run = self.run.clone();
        match self.submit(answer) {
            Ok(call) => {
                let mut answer = call.durable().await?;
                let mut log = run.log();
                // If a layer above has begun the run, that layer adds this usage.
                if log.is_alone {
                    answer.finish.usage += log.take_usage_of_summaries();
                }
                Ok(answer)
            }
            Err(refused) => {
                let (error, submission) = *refused;
                // If this write fails, the failure is only logged, because the caller receives the
                // error of the refusal.
                let failure = "tool results of a refused service call could not be recorded";
                logged(&run, submission, failure).await;
                Err(error)
            }
        }
    }

    /// Submits the inputs and the answer. If the answer must not be stored, submits the inputs or
    /// results that the policy allows to be stored, and returns the error together with this
    /// submission.
    fn submit(
        mut self: Box<Self>,
        mut answer: Answer,
    ) -> Result<StoredCall, Box<(PersistenceError, Submission)>> {
        let run = self.run.clone();
        let slot = self.take_slot();
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut log = run.log();
        if let Some(Attempt::Answered { answer, write, .. }) = log.calls.attempt(self.ordinal) {
            let (answer, write) = (answer.clone(), write.clone());
            return Ok(submit_again(&run, &log, self.ordinal, answer, write));
        }
        log.leave_out_submitted(self.ordinal, &mut inputs);
        let adopted = match adopt_answer(&run, &mut log, &answer) {
            Ok(adopted) => adopted,
            Err(error) => {
                log.calls.refused = self.ordinal;
                let submission = run.record(&mut log, slot, Event::AnswerRefused { inputs }).0;
                return Err(Box::new((error, submission)));
            }
        };
        if let Some(summarize) = &run.policy().summarize {
            let state = log.sized_state();
            summarize.note_size(run.key(), state, &answer.finish.usage);
        }
        let first = log.conversation.assigned_ids + inputs.len();
        let unasked = log.number(
            first,
            std::mem::take(&mut answer.messages),
            run.clock().whole_milliseconds(),
        );
        answer.messages = match run.write_point() {
            WritePoint::EachCall => self.with_approval_requests(unasked.clone()),
            // If the run is stored at its end, the tool loop replaces the calls itself, because the
            // loop receives messages before the end of the answer.
            WritePoint::End => unasked.clone(),
        };
        if let Err(refused) = log.call_records.keep_pending_calls(&answer.messages) {
            let (ordinal, kept) = (self.ordinal, run.policy().inputs_of_failed_call);
            let text = self.streamed_text();
            let event = Event::Unanswered { ordinal, inputs, text, kept };
            let submission = run.record(&mut log, slot, event).0;
            answer.messages = unasked;
            let error = pending_call_not_kept(&run, refused, answer);
            return Err(Box::new((error, submission)));
        }
        if adopted.service_id.is_none()
            && run.write_point() == WritePoint::EachCall
            && !self.options.is_background()
        {
            answer.finish.history_owner = Some(HistoryOwner::Local);
        }
        inputs.extend(answer.messages.iter().cloned());
        let answered = self.answered(inputs, &answer, adopted);
        let step = answered.step.clone();
        let (submission, write) = run.record(&mut log, slot, Event::Answered(answered));
        let attempt = Attempt::Answered { answer: answer.clone(), step, write };
        log.calls.keep(self.ordinal, attempt);
        drop(log);
        Ok(StoredCall { run, ordinal: self.ordinal, answer, submission })
    }

    /// Returns the event of an answered call: the messages to store, and the next step.
    fn answered(&self, messages: Vec<Arc<Message>>, answer: &Answer, adopted: Adopted) -> Answered {
        let policy = self.loop_policy.as_ref();
        let step = policy.map(|policy| policy.next_step(&answer.messages));
        let is_last_call = policy.is_some_and(|policy| policy.is_last_call);
        Answered {
            messages,
            answer: answer.messages.clone(),
            adopted,
            first_calls: self.first_calls(step.as_ref(), &answer.messages),
            step,
            ended_by: is_last_call.then_some(EndedBy::RoundLimit),
        }
    }

    /// Returns the messages of the answer, with calls that need approval replaced by approval requests.
    fn with_approval_requests(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        match &self.loop_policy {
            Some(policy) => policy.rules().request_approvals(messages),
            None => request_approvals_of(messages, &self.options.tools),
        }
    }

    /// Returns the calls whose tools start after the answer is stored. If the tool loop has not
    /// reported its policy, these are all calls of the answer without results.
    fn first_calls(&self, step: Option<&NextStep>, answer: &[Arc<Message>]) -> Vec<CallOfRun> {
        match self.loop_policy.as_ref().zip(step) {
            Some((policy, step)) => policy.first_calls(step),
            None => pending_calls(answer).iter().filter_map(PendingCall::position).collect(),
        }
    }

    /// Submits those inputs of a failed service call that the policy selects, and waits until they
    /// are stored or their failure is logged. If the request has not reached the service, only
    /// inputs up to the last result are stored, because the service has not received the user's
    /// message.
    pub(crate) async fn fail(mut self: Box<Self>, error: &BoxError) {
        let slot = self.take_slot();
        let run = self.run.clone();
        note_refused_inputs(&run, &self.inputs, error);
        let mut kept = run.policy().inputs_of_failed_call;
        if kept == UnansweredInputs::All && is_before_service(&**error) {
            kept = UnansweredInputs::Results;
        }
        let submission = self.unanswered(slot, kept);
        logged(&run, submission, "the inputs of a failed service call could not be stored").await;
    }

    /// Submits those inputs of a failed or dropped service call that `kept` selects.
    fn unanswered(&mut self, slot: Result<Slot, StoreError>, kept: UnansweredInputs) -> Submission {
        let (ordinal, inputs) = (self.ordinal, std::mem::take(&mut self.inputs));
        let event = Event::Unanswered { ordinal, inputs, text: self.streamed_text(), kept };
        self.run.record(&mut self.run.log(), slot, event).0
    }

    fn streamed_text(&mut self) -> Option<Arc<str>> {
        self.streamed.take().and_then(|streamed| streamed.text())
    }

    /// Returns the slot, and marks the call as settled, so that dropping the call stores nothing.
    /// Must be called only once.
    fn take_slot(&mut self) -> Result<Slot, StoreError> {
        match std::mem::replace(&mut self.progress, CallState::Settled) {
            CallState::Waiting => Ok(Slot::unbounded()),
            CallState::InFlight(slot) => slot,
            CallState::Settled => Err(StoreError::Closed),
        }
    }
}

impl Drop for OpenCall {
    /// If the caller disconnects before the end of the answer, submits the inputs that the policy
    /// selects for a dropped call.
    fn drop(&mut self) {
        if let CallState::Settled = self.progress {
            return;
        }
        let slot = self.take_slot().map(Slot::without_blocking);
        let kept = self.run.policy().inputs_of_dropped_call;
        drop(self.unanswered(slot, kept));
    }
}

impl StoredCall {
    /// Waits until the write of the answer is durable, or is in the outbox.
    ///
    /// # Errors
    ///
    /// Returns [`PersistenceError::NotStored`], with the answer.
    pub(crate) async fn durable(self) -> Result<Answer, PersistenceError> {
        let Self { run, ordinal, mut answer, submission } = self;
        let settled = run.settled(submission, || Some(answer.clone())).await;
        let mut log = run.log();
        if let Err(error) = settled {
            log.calls.refused = ordinal;
            return Err(error);
        }
        if log.unsaved == 0 {
            log.calls.forget_write(ordinal);
        }
        log.unsettled.clear();
        answer.finish.saved = Some(log.saved());
        Ok(answer)
    }
}

/// Returns an answer that was already submitted. If `write` is `Some`, the answer may not be
/// durable, so the write is submitted again.
pub(super) fn submit_again(
    run: &Run,
    log: &RunLog,
    ordinal: Option<u32>,
    answer: Answer,
    write: Option<Write>,
) -> StoredCall {
    let submission = match write {
        Some(write) => {
            let slot = Ok(Slot::unbounded());
            let writes = log.with_unsettled(write);
            Submission::submit(run.store(), run.store_failure(), slot, writes)
        }
        None => Submission::nothing(),
    };
    StoredCall { run: run.clone(), ordinal, answer, submission }
}
