//! One service call of a run that is stored call by call: what is new in it, and what it came to.

use std::sync::Arc;

use tower_chat_core::{
    Answer, BoxError, ChatOptions, ChatUpdate, ConversationKey, EndedBy, HistoryOwner, Message,
    MessageId, Role,
    store::{StoreError, author::Slot},
};

use super::{
    Run, State, Submission, last_call::Attempt, partial_text::StreamedText,
    run_end::response_at_end, submission::FailedSubmission, write::RunWrite,
};
use crate::{
    PersistenceError, UnansweredInputs,
    approval::request_approvals_of,
    next_step::{CallCount, LoopPolicy, NextStep, TooManyCalls, pending_calls},
    refusal::is_before_service,
    replay::Replay,
    tool::{CallOfRun, PendingCall},
};

/// A service call under way: it is stored if it completes, and by policy its inputs are stored if
/// it fails or is dropped.
pub(crate) struct OpenCall {
    run: Run,
    ordinal: Option<u32>,
    /// What is new in the call, numbered.
    inputs: Vec<Arc<Message>>,
    /// The replay of everything up to and with the inputs.
    replay: Replay,
    options: Arc<ChatOptions>,
    /// How the tool loop decides what follows, where it says so.
    loop_policy: Option<LoopPolicy>,
    /// The calls of the answer so far, where the tool loop limits them.
    calls: Option<CallCount>,
    /// What was streamed of the answer, where that is kept.
    streamed: Option<StreamedText>,
    state: CallState,
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

/// What is left of a service call that came to no answer.
pub(super) struct Unanswered {
    pub(super) inputs: Vec<Arc<Message>>,
    /// What was streamed, where that is kept.
    pub(super) text: Option<Arc<str>>,
}

/// A service call whose answer cannot be stored: it names a service id that does not fit, or
/// asks for a call that could not wait for approval.
pub(crate) struct RefusedCall {
    error: PersistenceError,
    /// What is stored of the results that the call carried.
    submission: Submission,
}

/// An answer whose messages were submitted.
pub(crate) struct StoredCall {
    pub(super) run: Run,
    pub(super) ordinal: Option<u32>,
    pub(super) answer: Answer,
    pub(super) submission: Submission,
}

impl OpenCall {
    /// A call with these numbered inputs, and the replay of everything up to and with them.
    pub(super) fn new(
        run: Run,
        ordinal: Option<u32>,
        (inputs, replay): (Vec<Arc<Message>>, Replay),
        options: Arc<ChatOptions>,
        loop_policy: Option<LoopPolicy>,
        keeps_text: bool,
    ) -> Self {
        Self {
            run,
            ordinal,
            inputs,
            replay,
            options,
            calls: loop_policy.as_ref().map(LoopPolicy::call_count),
            loop_policy,
            streamed: keeps_text.then(StreamedText::default),
            state: CallState::Waiting,
        }
    }

    /// Waits for a slot in the store's queue, before the model is paid.
    ///
    /// # Errors
    ///
    /// If the store takes no more writes and the policy is to fail.
    pub(crate) async fn reserve(&mut self) -> Result<(), PersistenceError> {
        match self.run.reserve().await {
            Ok(slot) => self.state = CallState::InFlight(slot),
            Err(error) => {
                self.state = CallState::Settled;
                return Err(error);
            }
        }
        Ok(())
    }

    /// What is new in the call.
    pub(crate) fn inputs(&self) -> &[Arc<Message>] {
        &self.inputs
    }

    pub(super) fn ordinal(&self) -> Option<u32> {
        self.ordinal
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

    /// The service has answered: submits inputs and answer together.
    ///
    /// # Errors
    ///
    /// If the answer's service id does not fit, by policy, nothing of the answer is written,
    /// and of the inputs the results of tools that have run go into the record. If a hook keeps
    /// nothing of a call that would wait for approval, the inputs are kept as of a call that failed.
    pub(crate) fn complete(
        mut self: Box<Self>,
        mut answer: Answer,
    ) -> Result<StoredCall, Box<RefusedCall>> {
        let run = self.run.clone();
        let slot = self.take_slot();
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut state = run.state();
        if let Some(Attempt::Answered { answer, write, .. }) = state.calls.attempt(self.ordinal) {
            let (answer, write) = (answer.clone(), write.clone());
            return Ok(run.submit_again(&state, self.ordinal, answer, write));
        }
        self.leave_out_taken(&state, &mut inputs);
        let prices = run.policy().prices.as_ref();
        state.calls.untold_usage.note(&answer.finish, &answer.messages, prices);
        let (service_id, recording) =
            (state.conversation.service_id.clone(), state.conversation.recording);
        let whole = || answer.clone();
        let adopted =
            match run.adopt_service_id(service_id.as_ref(), recording, &answer.finish, whole) {
                Ok(adopted) => adopted,
                Err(error) => {
                    state.calls.refused = self.ordinal;
                    let submission = run.recorder().results_refused(&mut state, slot, &inputs);
                    return Err(Box::new(RefusedCall { error, submission }));
                }
            };
        let first = state.conversation.taken + inputs.len();
        let messages = run.number(first, std::mem::take(&mut answer.messages));
        answer.messages = self.with_approval_requests(messages.clone());
        if let Err(refused) = state.call_records.keep_pending_calls(&answer.messages) {
            drop(state);
            self.inputs = inputs;
            let kept = run.policy().inputs_of_failed_call;
            let submission = run.recorder().call_failed(&mut self, slot, kept);
            answer.messages = messages;
            let error = run.pending_call_not_kept(refused, answer);
            return Err(Box::new(RefusedCall { error, submission }));
        }
        if adopted.service_id.is_none() && !self.options.is_background() {
            answer.finish.history_owner = Some(HistoryOwner::Local);
        }
        let mut write = RunWrite { adopted: Some(adopted), ..RunWrite::messages(inputs) };
        write.messages.extend(answer.messages.iter().cloned());
        Ok(self.submit(&mut state, slot, write, answer))
    }

    /// Submits what an answered call adds, with what follows it.
    fn submit(
        &mut self,
        state: &mut State,
        slot: Result<Slot, StoreError>,
        mut write: RunWrite,
        answer: Answer,
    ) -> StoredCall {
        let run = self.run.clone();
        state.of_mode.forget_partial_text();
        let step = self.loop_policy.as_ref().map(|policy| policy.next_step(&answer.messages));
        let first_calls = self.first_calls(step.as_ref(), &answer.messages);
        let is_last_call = self.loop_policy.as_ref().is_some_and(|policy| policy.is_last_call);
        write.ended_by = is_last_call.then_some(EndedBy::RoundLimit);
        run.recorder().call_answered(&mut write, step.as_ref(), first_calls);
        // A loop that is not of this crate does not say what follows. Unmarked, the answer would count
        // as a part of the interrupted one before it.
        write.ends_run |= self.loop_policy.is_none()
            && follows_open_calls(&state.conversation.added, &write.messages)
            && pending_calls(&answer.messages).is_empty();
        let (submission, write) = run.submit(state, slot, write);
        answer.messages.iter().for_each(|message| self.replay.push(message));
        std::mem::swap(&mut state.conversation.replay, &mut self.replay);
        let attempt = Attempt::Answered { answer: answer.clone(), step, write };
        state.calls.keep(self.ordinal, attempt);
        StoredCall { run, ordinal: self.ordinal, answer, submission }
    }

    /// The messages of the answer, in which calls that need approval are requests for it.
    fn with_approval_requests(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        match &self.loop_policy {
            Some(policy) => policy.rules().request_approvals(messages),
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
        let mut submission = run.recorder().call_failed(&mut self, slot, kept);
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::error!(
                conversation = %run.key(),
                error = &source as &dyn std::error::Error,
                "the inputs of a failed service call could not be stored"
            );
        }
    }

    /// The call came to no answer: its inputs, and the text that was streamed. `None` if another
    /// attempt at the same call was answered meanwhile, where somebody above makes it twice at once.
    pub(super) fn take_unanswered(&mut self, state: &State) -> Option<Unanswered> {
        let inputs = std::mem::take(&mut self.inputs);
        let text = self.streamed.take().and_then(|streamed| streamed.text());
        match state.calls.attempt(self.ordinal) {
            Some(Attempt::Answered { .. }) => None,
            Some(Attempt::Unanswered { .. }) | None => Some(Unanswered { inputs, text }),
        }
    }

    /// Leaves out inputs that another attempt at the same call has submitted.
    pub(super) fn leave_out_taken(&self, state: &State, inputs: &mut Vec<Arc<Message>>) {
        if let Some(Attempt::Unanswered { .. }) = state.calls.attempt(self.ordinal) {
            let is_new = |id: MessageId| id.index as usize >= state.conversation.taken;
            inputs.retain(|message| message.id.is_none_or(is_new));
        }
    }

    /// The slot, once; from then on dropping the call stores nothing.
    fn take_slot(&mut self) -> Result<Slot, StoreError> {
        match std::mem::replace(&mut self.state, CallState::Settled) {
            CallState::Waiting => Ok(Slot::unbounded()),
            CallState::InFlight(slot) => slot,
            CallState::Settled => Err(StoreError::Closed),
        }
    }
}

/// Whether an answer comes right after one whose calls have no results.
fn follows_open_calls(added: &[Arc<Message>], written: &[Arc<Message>]) -> bool {
    written.first().is_some_and(|first| first.role == Role::Assistant)
        && !pending_calls(response_at_end(added)).is_empty()
}

impl Drop for OpenCall {
    /// The caller has gone away before the end of the answer: the inputs are stored by policy,
    /// whatever the cause was.
    fn drop(&mut self) {
        if let CallState::Settled = self.state {
            return;
        }
        let slot = self.take_slot();
        self.run.clone().recorder().call_cancelled(self, slot);
    }
}

impl RefusedCall {
    /// Waits until the results are recorded. That they could not be is logged and no more: the
    /// caller has to know of the conflict first.
    pub(crate) async fn refuse(mut self) -> PersistenceError {
        if let Err(FailedSubmission { source, .. }) = self.submission.outcome().await {
            tracing::error!(
                error = &source as &dyn std::error::Error,
                "tool results of a refused service call could not be recorded"
            );
        }
        self.error
    }
}

impl StoredCall {
    /// Waits until the answer is durable, or its failure is dealt with.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`], with the answer.
    pub(crate) async fn durable(self) -> Result<Answer, PersistenceError> {
        let Self { run, ordinal, mut answer, mut submission } = self;
        match submission.outcome().await {
            Ok(unsaved) => {
                let mut state = run.state();
                if unsaved == 0 {
                    state.calls.forget_write(ordinal);
                }
                state.unsaved = unsaved;
                state.unsettled.clear();
                answer.finish.saved = Some(state.saved());
                Ok(answer)
            }
            Err(failed) => {
                run.state().calls.refused = ordinal;
                Err(run.refused(failed, Some(answer)).await)
            }
        }
    }
}
