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
    BegunBy, Run, RunLog, Submission, WritePoint,
    approvals::pending_call_not_kept,
    calls::Attempt,
    events::{Answered, Event},
    partial_text::StreamedText,
    recording::Adopted,
    refused_content::note_refused_inputs,
    service_id::adopt_answer,
    tool_events::reserve_beside,
    write::{await_and_log, store_failure},
};
use crate::{
    PersistenceError, UnansweredInputs,
    approval::request_approvals_of,
    ending::Ending,
    next_step::{LoopPolicy, NextStep, pending_calls},
    refusal::is_before_service,
    tool::{CallOfRun, PendingCall},
};

/// A service call in flight. Its inputs and answer are stored in one write, in per-run mode at the
/// end of the run. If the call fails or is dropped, the policy decides whether its inputs are
/// stored.
pub(crate) struct OpenCall {
    run: Run,
    ordinal: Option<u32>,
    inputs: Vec<Arc<Message>>,
    options: Arc<ChatOptions>,
    /// `None` if the tool loop has not reported its policy.
    loop_policy: Option<LoopPolicy>,
    /// The text of the answer that has arrived, if the policy stores partial responses.
    streamed: Option<StreamedText>,
    progress: CallState,
}

enum CallState {
    /// The call waits for a slot in the store's queue. If it is dropped, its inputs are submitted
    /// without a slot.
    Waiting,
    /// The service has not answered yet. If no slot could be reserved, the write will fail with
    /// this error.
    InFlight(Result<Slot, StoreError>),
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
    /// Creates a call with these inputs, which must have their ids.
    pub(super) fn new(
        run: Run,
        ordinal: Option<u32>,
        inputs: Vec<Arc<Message>>,
        options: Arc<ChatOptions>,
        loop_policy: Option<LoopPolicy>,
    ) -> Self {
        let keeps_text = run.policy().keep_partial_text && run.begun_by() != BegunBy::OtherLoop;
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

    /// Waits for a slot in the store's queue, before the paid request to the model. Returns an
    /// error if the policy does not allow to continue without a slot.
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

    pub(crate) fn inputs(&self) -> &[Arc<Message>] {
        &self.inputs
    }

    /// Submits the inputs and the answer. If the answer is refused, submits the permitted inputs or
    /// results, and returns the error.
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
            let state = log.conversation.sized_state();
            summarize.note_size(run.key(), state, &answer.finish.usage);
        }
        let first = log.assigned_ids() + inputs.len();
        let unasked = log.conversation.added.number(
            first,
            std::mem::take(&mut answer.messages),
            run.clock().whole_milliseconds(),
        );
        answer.messages = match run.write_point() {
            WritePoint::EachCall => self.with_approval_requests(unasked.clone()),
            // The tool loop replaces the calls itself, because it receives messages before the end
            // of the answer.
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
        log.calls.set_last(self.ordinal, attempt);
        drop(log);
        Ok(StoredCall { run, ordinal: self.ordinal, answer, submission })
    }

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

    /// Returns the messages of the answer, with approval requests instead of calls that need
    /// approval.
    fn with_approval_requests(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        match &self.loop_policy {
            Some(policy) => policy.rules().request_approvals(messages),
            None => request_approvals_of(messages, &self.options.tools),
        }
    }

    /// Returns the calls whose tools start after the answer is stored. If the tool loop has not
    /// reported its policy, these are all calls without results.
    fn first_calls(&self, step: Option<&NextStep>, answer: &[Arc<Message>]) -> Vec<CallOfRun> {
        match self.loop_policy.as_ref().zip(step) {
            Some((policy, step)) => policy.first_calls(step),
            None => pending_calls(answer).iter().filter_map(PendingCall::position).collect(),
        }
    }

    fn unanswered(&mut self, slot: Result<Slot, StoreError>, kept: UnansweredInputs) -> Submission {
        let (ordinal, inputs) = (self.ordinal, std::mem::take(&mut self.inputs));
        let event = Event::Unanswered { ordinal, inputs, text: self.streamed_text(), kept };
        self.run.record(&mut self.run.log(), slot, event).0
    }

    fn streamed_text(&mut self) -> Option<Arc<str>> {
        self.streamed.take().and_then(|streamed| streamed.text())
    }

    /// Returns the slot, and marks the call as settled, so that its drop stores nothing. Must be
    /// called only once.
    fn take_slot(&mut self) -> Result<Slot, StoreError> {
        match std::mem::replace(&mut self.progress, CallState::Settled) {
            CallState::Waiting => Ok(Slot::unbounded()),
            CallState::InFlight(slot) => slot,
            CallState::Settled => Err(StoreError::Closed),
        }
    }
}

impl Ending for Box<OpenCall> {
    /// The messages of a run that is stored at its end need not be durable before the loop receives
    /// them. The loop can then refuse an endless answer.
    fn passes_messages_early(&self) -> bool {
        self.run.write_point() == WritePoint::End
    }

    fn record_update(&mut self, update: &ChatUpdate) {
        if let Some(streamed) = &mut self.streamed {
            streamed.record_update(update);
        }
    }

    /// Checks the number of calls in the answer against the limit of the tool loop.
    fn check(&self, answer: &[Arc<Message>]) -> Result<(), BoxError> {
        if let Some(policy) = &self.loop_policy {
            policy.check(answer, Some(self.run.key()))?;
        }
        Ok(())
    }

    /// Submits the inputs and the answer in one write at the first poll of the future, and waits
    /// until the write is durable.
    ///
    /// The answer is refused in two cases:
    /// - The service id of the answer is missing or not allowed. Results of tools among the inputs
    ///   are then stored in the record.
    /// - A hook does not allow the call of an approval request to be stored. The inputs are then
    ///   stored as for a failed call.
    async fn complete(self, answer: Answer) -> Result<Answer, PersistenceError> {
        let run = self.run.clone();
        match self.submit(answer) {
            Ok(call) => {
                let mut answer = call.durable().await?;
                let mut log = run.log();
                // Otherwise the layer that ends the run adds this usage.
                if run.begun_by() == BegunBy::OtherLoop {
                    answer.finish.usage += log.take_usage_of_summaries();
                }
                Ok(answer)
            }
            Err(refused) => {
                let (error, submission) = *refused;
                // A failure of this write is only logged, because the caller receives the error of
                // the refusal.
                let failure = "tool results of a refused service call could not be recorded";
                await_and_log(&run, submission, failure).await;
                Err(error)
            }
        }
    }

    /// Submits the inputs of a failed service call that the policy selects, and waits until they
    /// are stored or their failure is logged. If the request has not reached the service, the
    /// user's message after the last result is not stored.
    async fn fail(mut self, error: &BoxError) {
        let slot = self.take_slot();
        let run = self.run.clone();
        note_refused_inputs(&run, &self.inputs, error);
        let mut kept = run.policy().inputs_of_failed_call;
        if kept == UnansweredInputs::All && is_before_service(&**error) {
            kept = UnansweredInputs::Results;
        }
        let submission = self.unanswered(slot, kept);
        await_and_log(&run, submission, "the inputs of a failed service call could not be stored")
            .await;
    }
}

impl Drop for OpenCall {
    /// Submits the inputs that the policy selects for a dropped call, because the caller has
    /// disconnected before the end of the answer.
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
    pub(crate) async fn durable(self) -> Result<Answer, PersistenceError> {
        let Self { run, ordinal, mut answer, submission } = self;
        let outcome = run.await_outcome(submission, || Some(answer.clone())).await;
        let mut log = run.log();
        if let Err(error) = outcome {
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

/// Returns an answer that was already submitted. A write that may not be durable is submitted
/// again.
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
            Submission::submit(run.store(), store_failure(run), slot, writes)
        }
        None => Submission::nothing(),
    };
    StoredCall { run: run.clone(), ordinal, answer, submission }
}
