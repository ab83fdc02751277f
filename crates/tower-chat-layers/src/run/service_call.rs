//! One service call of a run that is stored call by call: what is new in it, and what it came to.

use std::sync::Arc;

use tower_chat_core::{
    Answer, BoxError, ChatOptions, ChatUpdate, ConversationKey, EndedBy, HistoryOwner, Message,
    Role, Usage,
    store::{StoreError, author::Slot},
};

use super::{
    Run, RunLog, Submission,
    events::{Answered, Event},
    last_call::Attempt,
    partial_text::StreamedText,
    run_end::{is_complete, response_at_end},
    service_id::Adopted,
};
use crate::{
    PersistenceError, UnansweredInputs,
    approval::request_approvals_of,
    next_step::{CallCount, LoopPolicy, NextStep, TooManyCalls, pending_calls},
    refusal::is_before_service,
    tool::{CallOfRun, PendingCall},
};

/// A service call under way: it is stored if it completes, and by policy its inputs are stored if
/// it fails or is dropped. Of a run that is stored at its end, the whole run is one.
pub(crate) struct OpenCall {
    run: Run,
    ordinal: Option<u32>,
    /// What is new in the call, numbered.
    inputs: Vec<Arc<Message>>,
    options: Arc<ChatOptions>,
    /// How the tool loop decides what follows, where it says so.
    loop_policy: Option<LoopPolicy>,
    /// The calls of the answer so far, where the tool loop limits them.
    calls: Option<CallCount>,
    /// What was streamed of the answer, where that is kept.
    streamed: Option<StreamedText>,
    progress: CallState,
}

/// How far a service call has come.
enum CallState {
    /// It waits for a slot in the store's queue. If it is dropped meanwhile, what it holds is
    /// submitted without one.
    Waiting,
    /// The service is called. Where no slot could be had, that is the outcome of the write.
    InFlight(Result<Slot, StoreError>),
    /// Everything that is stored of it was submitted.
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
    /// A call with these numbered inputs, and the options of its request.
    pub(super) fn new(
        run: Run,
        ordinal: Option<u32>,
        inputs: Vec<Arc<Message>>,
        options: Arc<ChatOptions>,
        loop_policy: Option<LoopPolicy>,
    ) -> Self {
        // Without a layer above the tool loop nobody knows when the run goes.
        let keeps_text = run.policy().keep_partial_text && !run.is_alone();
        Self {
            run,
            ordinal,
            inputs,
            options,
            calls: loop_policy.as_ref().map(LoopPolicy::call_count),
            loop_policy,
            streamed: keeps_text.then(StreamedText::default),
            progress: CallState::Waiting,
        }
    }

    /// The whole run, which is stored at its end.
    pub(crate) fn whole_run(run: Run, input: Vec<Arc<Message>>) -> Self {
        Self::new(run, None, input, Arc::default(), None)
    }

    /// Waits for a slot in the store's queue, before the model is paid.
    ///
    /// # Errors
    ///
    /// If the store takes no more writes and the policy is to fail.
    pub(crate) async fn reserve(&mut self) -> Result<(), PersistenceError> {
        match self.run.reserve().await {
            Ok(slot) => self.progress = CallState::InFlight(slot),
            Err(error) => {
                self.progress = CallState::Settled;
                return Err(error);
            }
        }
        Ok(())
    }

    /// What is new in the call.
    pub(crate) fn inputs(&self) -> &[Arc<Message>] {
        &self.inputs
    }

    /// The conversation that it extends.
    pub(crate) fn key(&self) -> &ConversationKey {
        self.run.key()
    }

    /// More of the answer has come.
    pub(crate) fn record_update(&mut self, update: &ChatUpdate) {
        if let Some(streamed) = &mut self.streamed {
            streamed.record_update(update);
        }
    }

    /// Whether the next message of the answer leaves it within the limit of the tool loop.
    ///
    /// # Errors
    ///
    /// If the answer holds more calls than the loop allows.
    pub(crate) fn check(&mut self, message: &Message) -> Result<(), TooManyCalls> {
        self.calls.as_mut().map_or(Ok(()), |calls| calls.take(message))
    }

    /// The service has answered: submits inputs and answer together, before the first await, and waits
    /// until they are durable.
    ///
    /// # Errors
    ///
    /// If the answer's service id does not fit, by policy, nothing of the answer is written,
    /// and of the inputs the results of tools that have run go into the record. If a hook keeps
    /// nothing of a call that would wait for approval, the inputs are kept as of a call that failed.
    /// [`PersistenceError::NotStored`], with the answer.
    pub(crate) async fn complete(
        self: Box<Self>,
        answer: Answer,
    ) -> Result<Answer, PersistenceError> {
        let run = self.run.clone();
        match self.submit(answer) {
            Ok(call) => call.durable().await,
            Err(refused) => {
                let (error, submission) = *refused;
                // The caller has to know of the refusal first.
                let failure = "tool results of a refused service call could not be recorded";
                run.logged(submission, failure).await;
                Err(error)
            }
        }
    }

    /// Submits inputs and answer, or what is kept of a call whose answer cannot be stored.
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
            return Ok(run.submit_again(&log, self.ordinal, answer, write));
        }
        log.leave_out_taken(self.ordinal, &mut inputs);
        let adopted = match self.adopted(&mut log, &answer) {
            Ok(adopted) => adopted,
            Err(error) => {
                log.calls.refused = self.ordinal;
                let submission = run.record(&mut log, slot, Event::AnswerRefused { inputs }).0;
                return Err(Box::new((error, submission)));
            }
        };
        let rounds = log.whole_run.take_unseen_rounds(&answer.messages);
        let first = log.conversation.taken + inputs.len();
        let rounds = log.number(first, rounds, run.now());
        // The last response of the rounds is what the loop has returned, as the model gave it.
        let seen = match is_complete(&rounds) {
            true => response_at_end(&rounds).len(),
            false => 0,
        };
        let first = first + rounds.len() - seen;
        let unasked = log.number(first, std::mem::take(&mut answer.messages), run.now());
        answer.messages = self.with_approval_requests(unasked.clone());
        let of_answer = rounds.into_iter().chain(answer.messages.iter().skip(seen).cloned());
        let of_answer: Vec<_> = of_answer.collect();
        if let Err(refused) = log.call_records.keep_pending_calls(&of_answer) {
            let (ordinal, kept) = (self.ordinal, run.policy().inputs_of_failed_call);
            let text = self.streamed_text();
            let event = Event::Unanswered { ordinal, inputs, text, kept };
            let submission = run.record(&mut log, slot, event).0;
            answer.messages = unasked;
            let error = run.pending_call_not_kept(refused, answer);
            return Err(Box::new((error, submission)));
        }
        if adopted.service_id.is_none() && !self.is_whole_run() && !self.options.is_background() {
            answer.finish.history_owner = Some(HistoryOwner::Local);
        }
        inputs.extend(of_answer);
        let answered = self.answered(inputs, &answer, adopted);
        let step = answered.step.clone();
        let (submission, write) = run.record(&mut log, slot, Event::Answered(answered));
        let attempt = Attempt::Answered { answer: answer.clone(), step, write };
        log.calls.keep(self.ordinal, attempt);
        drop(log);
        Ok(StoredCall { run, ordinal: self.ordinal, answer, submission })
    }

    /// What an answer means for where the history is kept, and for the usage of the run. A layer that
    /// has seen the service calls of a whole run has noted their usage and compared their ids, and a layer
    /// above may have left the id out of the answer since.
    fn adopted(&self, log: &mut RunLog, answer: &Answer) -> Result<Adopted, PersistenceError> {
        let is_seen = self.is_whole_run() && log.calls.is_answered;
        let is_of_model = answer.messages.iter().any(|message| message.role == Role::Assistant)
            || answer.finish.usage != Usage::default();
        if !is_seen && (is_of_model || !self.is_whole_run()) {
            log.note_usage(answer, self.run.policy().prices.as_ref());
        }
        let is_named = answer.finish.history_owner.as_ref().and_then(HistoryOwner::service_id);
        match (&log.conversation.service_id, is_named) {
            (Some(service_id), None) if is_seen => {
                Ok(Adopted::named(service_id.clone(), log.conversation.recording))
            }
            _ => self.run.adopt_service_id(log, answer),
        }
    }

    /// What is stored of the answer, and what follows it.
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
            ended_by: match self.is_whole_run() {
                true => answer.finish.ended_by,
                false => is_last_call.then_some(EndedBy::RoundLimit),
            },
        }
    }

    fn is_whole_run(&self) -> bool {
        self.run.is_written_at_end()
    }

    /// The messages of the answer, in which calls that need approval are requests for it.
    fn with_approval_requests(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        match &self.loop_policy {
            Some(policy) => policy.rules().request_approvals(messages),
            None if self.is_whole_run() => messages,
            None => request_approvals_of(messages, &self.options.tools),
        }
    }

    /// The calls that start once the answer is stored. A loop that says nothing of itself may run
    /// every tool that the answer asks for.
    fn first_calls(&self, step: Option<&NextStep>, answer: &[Arc<Message>]) -> Vec<CallOfRun> {
        match self.loop_policy.as_ref().zip(step) {
            Some((policy, step)) => policy.first_calls(step),
            None => pending_calls(answer).iter().filter_map(PendingCall::position).collect(),
        }
    }

    /// The service call has failed: submits what is kept of the inputs, by policy, and waits. Where no
    /// service was asked, there is no question without an answer.
    pub(crate) async fn fail(mut self: Box<Self>, error: &BoxError) {
        let slot = self.take_slot();
        let run = self.run.clone();
        run.note_refused_inputs(&self.inputs, error);
        let mut kept = run.policy().inputs_of_failed_call;
        if kept == UnansweredInputs::All && is_before_service(&**error) {
            kept = UnansweredInputs::Results;
        }
        let submission = self.unanswered(slot, kept);
        run.logged(submission, "the inputs of a failed service call could not be stored").await;
    }

    /// The call came to no answer: submits what is kept of it.
    fn unanswered(&mut self, slot: Result<Slot, StoreError>, kept: UnansweredInputs) -> Submission {
        let (ordinal, inputs) = (self.ordinal, std::mem::take(&mut self.inputs));
        let event = Event::Unanswered { ordinal, inputs, text: self.streamed_text(), kept };
        self.run.record(&mut self.run.log(), slot, event).0
    }

    fn streamed_text(&mut self) -> Option<Arc<str>> {
        self.streamed.take().and_then(|streamed| streamed.text())
    }

    /// The slot, once; from then on dropping the call stores nothing.
    fn take_slot(&mut self) -> Result<Slot, StoreError> {
        match std::mem::replace(&mut self.progress, CallState::Settled) {
            CallState::Waiting => Ok(Slot::unbounded()),
            CallState::InFlight(slot) => slot,
            CallState::Settled => Err(StoreError::Closed),
        }
    }
}

impl Drop for OpenCall {
    /// The caller has gone away before the end of the answer: the inputs are stored by policy,
    /// whatever the cause was.
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
    /// Waits until the answer is durable, or its failure is dealt with.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`], with the answer.
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
