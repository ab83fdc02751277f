//! One service call of a run: its new messages and its outcome.

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

/// A service call in flight. A complete service call is stored, or held until the end of its run. If the
/// call fails or is dropped, the policy decides whether its inputs are stored.
pub(crate) struct OpenCall {
    run: Run,
    ordinal: Option<u32>,
    /// The new messages of the service call, numbered.
    inputs: Vec<Arc<Message>>,
    options: Arc<ChatOptions>,
    /// The rules by which the tool loop decides the next step, if it has reported its policy.
    loop_policy: Option<LoopPolicy>,
    /// The streamed text of the answer, if the policy stores partial responses.
    streamed: Option<StreamedText>,
    progress: CallState,
}

/// The state of a service call.
enum CallState {
    /// The call waits for a slot in the store's queue. If it is dropped in this state, its inputs are
    /// submitted without a slot.
    Waiting,
    /// The service is called. If no slot was available, the write will fail with this error.
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
    /// Creates a call with these numbered inputs and the options of its request.
    pub(super) fn new(
        run: Run,
        ordinal: Option<u32>,
        inputs: Vec<Arc<Message>>,
        options: Arc<ChatOptions>,
        loop_policy: Option<LoopPolicy>,
    ) -> Self {
        // If no layer above the tool loop has begun the run, the end of the run is not known, and no
        // write could store the text.
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

    /// Waits for a slot in the store's queue before the paid request to the model.
    ///
    /// # Errors
    ///
    /// Returns an error if the store accepts no more writes and the policy is to fail.
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

    /// Submits inputs and answer together before the first await, and waits until they are durable.
    ///
    /// # Errors
    ///
    /// If the policy does not allow the answer's service id, nothing of the answer is written, and
    /// results of tools among the inputs are stored only in the record. If a hook does not allow a call
    /// that waits for approval to be stored, the inputs are stored as for a failed call.
    /// [`PersistenceError::NotStored`] contains the answer.
    pub(crate) async fn complete(
        self: Box<Self>,
        answer: Answer,
    ) -> Result<Answer, PersistenceError> {
        let run = self.run.clone();
        match self.submit(answer) {
            Ok(call) => call.durable().await,
            Err(refused) => {
                let (error, submission) = *refused;
                // The failure is only logged, because the caller needs the error of the refusal.
                let failure = "tool results of a refused service call could not be recorded";
                logged(&run, submission, failure).await;
                Err(error)
            }
        }
    }

    /// Submits inputs and answer. If the answer cannot be stored, submits the inputs that the policy
    /// stores.
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
        let first = log.conversation.assigned_ids + inputs.len();
        let unasked = log.number(
            first,
            std::mem::take(&mut answer.messages),
            run.clock().whole_milliseconds(),
        );
        answer.messages = match run.write_point() {
            WritePoint::EachCall => self.with_approval_requests(unasked.clone()),
            // The tool loop may have received some of the messages before the end of the answer.
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

    /// Returns the calls that start after the answer is stored. A loop that does not report its policy
    /// may run every tool that the answer requests.
    fn first_calls(&self, step: Option<&NextStep>, answer: &[Arc<Message>]) -> Vec<CallOfRun> {
        match self.loop_policy.as_ref().zip(step) {
            Some((policy, step)) => policy.first_calls(step),
            None => pending_calls(answer).iter().filter_map(PendingCall::position).collect(),
        }
    }

    /// Submits those inputs of a failed service call that the policy stores, and waits until the outcome
    /// is known. If the request has not reached the service, only results are stored, because the user's
    /// message is not an unanswered question in this case.
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

    /// Submits the part of a failed service call that `kept` selects.
    fn unanswered(&mut self, slot: Result<Slot, StoreError>, kept: UnansweredInputs) -> Submission {
        let (ordinal, inputs) = (self.ordinal, std::mem::take(&mut self.inputs));
        let event = Event::Unanswered { ordinal, inputs, text: self.streamed_text(), kept };
        self.run.record(&mut self.run.log(), slot, event).0
    }

    fn streamed_text(&mut self) -> Option<Arc<str>> {
        self.streamed.take().and_then(|streamed| streamed.text())
    }

    /// Returns the slot. Must be called once. Afterwards, dropping the call stores nothing.
    fn take_slot(&mut self) -> Result<Slot, StoreError> {
        match std::mem::replace(&mut self.progress, CallState::Settled) {
            CallState::Waiting => Ok(Slot::unbounded()),
            CallState::InFlight(slot) => slot,
            CallState::Settled => Err(StoreError::Closed),
        }
    }
}

impl Drop for OpenCall {
    /// Stores the inputs by the policy if the caller disconnects before the end of the answer.
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
    /// Waits until the answer is durable, or until its failure is handled.
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

/// Returns an answer that was already submitted. If `write` is set, the answer may not be durable, and
/// the write is submitted again.
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
