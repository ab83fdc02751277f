//! One service call of a run: what is new in it, and what of it is stored in each outcome.

use std::sync::Arc;

use futures_util::FutureExt;
use tower_chat_core::{
    Answer, ChatOptions, ChatRequest, ChatUpdate, ConversationId, ConversationKey, Message,
    MessageId, Role,
    store::{Close, Slot, StoreError, Write},
};

use super::{
    Run, ServiceCall, State, Submission, hooks::has_asked_hooks, journal::Journal,
    leaf_request::own_messages, partial_text::StreamedText, record::Composed, service_id::Adopted,
    submission::FailedSubmission,
};
use crate::{
    NotStored, PersistenceError, StoreFailure, UnansweredInputs,
    approval::request_approvals_of,
    next_step::{CallCount, LoopPolicy, NextStep, TooManyCalls, pending_calls},
    replay::Replay,
    tool::{CallOfRun, PendingCall, ToolOutcome},
};

/// A service call that was begun: it is stored if it completes, and its inputs are stored if it is
/// dropped before.
pub(crate) struct OpenCall {
    run: Run,
    ordinal: Option<u32>,
    /// What is new in the call, numbered.
    inputs: Vec<Arc<Message>>,
    /// The replay of everything up to and with the inputs.
    replay: Replay,
    options: Arc<ChatOptions>,
    /// What the tool loop will do with the answer, where it says so.
    loop_policy: Option<LoopPolicy>,
    /// The calls of the answer so far, where the tool loop limits them.
    calls: Option<CallCount>,
    /// What was streamed of the answer, where that is kept.
    streamed: Option<StreamedText>,
    /// The place in the store's queue; `None` once nothing is to be stored any more. A caller who
    /// goes away while it is waited for does not wait, and what tools have done is not lost.
    slot: Option<Result<Slot, StoreError>>,
}

/// Whether a service call has to be made.
pub(crate) enum StartedCall {
    /// It has.
    Call(Box<OpenCall>),
    /// The same call was answered before. Its answer is submitted again unless it is known to be
    /// durable; a store recognises what it has.
    Answered(Box<StoredCall>),
}

/// What became of an answer.
pub(crate) enum CompletedCall {
    Durable(Answer),
    Submitted(Box<StoredCall>),
    /// Nothing of the answer is stored.
    Refused(Box<RefusedCall>),
}

/// A service call whose answer cannot be stored: it names a conversation id that does not fit, or
/// asks for a call that could not wait for approval.
pub(crate) struct RefusedCall {
    error: PersistenceError,
    /// What is stored of the results that the call carried.
    submission: Submission,
}

/// An answer whose messages were submitted.
pub(crate) struct StoredCall {
    run: Run,
    ordinal: Option<u32>,
    answer: Answer,
    submission: Submission,
}

/// The last service call of a run, for a retry that sends it again.
pub(super) struct CallRecord {
    ordinal: u32,
    outcome: Attempt,
}

/// What goes into one write.
#[derive(Default)]
pub(super) struct ToStore {
    pub(super) messages: Vec<Arc<Message>>,
    /// Results that no service call has seen.
    pub(super) left_out: Vec<Arc<Message>>,
    /// Who keeps the history from now on, where an answer said so.
    pub(super) adopted: Option<Adopted>,
    /// The messages are all that the run adds, its final answer included.
    pub(super) is_whole_run: bool,
    /// Calls that are about to run.
    pub(super) starts: Vec<CallOfRun>,
    /// What came out of calls whose results are in no message yet.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// How a journaled run ends with it.
    pub(super) close: Option<Close>,
    /// It is the last of its run, which ended on purpose.
    pub(super) ends_run: bool,
    /// With this answer, which was stored before.
    pub(super) last_response: Vec<Arc<Message>>,
}

impl ToStore {
    pub(super) fn messages(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, ..Self::default() }
    }
}

enum Attempt {
    /// Its answer and everything before it was submitted, by a write that is kept until it is
    /// known to be durable.
    /// `step` is what follows it, where the tool loop has said how it decides.
    Answered { answer: Answer, step: Option<NextStep>, write: Option<Write> },
    /// It came to no answer; `rest` are those of its inputs that were not submitted.
    Unanswered { rest: Vec<Arc<Message>> },
}

impl CallRecord {
    /// How many messages at the end of a service call were not submitted, if it is this one.
    pub(super) fn left_of(&self, ordinal: u32) -> Option<usize> {
        let left = match &self.outcome {
            Attempt::Answered { .. } => 0,
            Attempt::Unanswered { rest } => rest.len(),
        };
        (self.ordinal == ordinal).then_some(left)
    }

    /// What follows its answer, if it is this call and this is the answer as it was stored.
    fn step_after(&self, ordinal: u32, messages: &[Arc<Message>]) -> Option<NextStep> {
        match &self.outcome {
            Attempt::Answered { answer, step, .. } if self.ordinal == ordinal => {
                step.clone().filter(|_| answer.messages == messages)
            }
            Attempt::Answered { .. } | Attempt::Unanswered { .. } => None,
        }
    }

    /// Whether it is this call, and it has its answer.
    pub(super) fn has_answer(&self, ordinal: u32) -> bool {
        self.ordinal == ordinal && matches!(self.outcome, Attempt::Answered { .. })
    }
}

impl State {
    /// Keeps the answer of a call for a retry.
    fn keep_answer(
        &mut self,
        ordinal: u32,
        answer: &Answer,
        step: Option<NextStep>,
        write: Option<Write>,
    ) {
        let outcome = Attempt::Answered { answer: answer.clone(), step, write };
        self.last_call = Some(CallRecord { ordinal, outcome });
    }

    /// The answer of a call is durable: its retry has nothing to submit again.
    fn forget_write(&mut self, ordinal: Option<u32>) {
        let last = self.last_call.as_mut().filter(|last| Some(last.ordinal) == ordinal);
        if let Some(CallRecord { outcome: Attempt::Answered { write, .. }, .. }) = last {
            *write = None;
        }
    }

    /// What was submitted is stored, but for so many messages in the outbox.
    fn settle(&mut self, unsaved: usize, answer: &mut Answer) {
        self.unsaved = unsaved;
        self.unsettled.clear();
        answer.finish.saved = Some(self.saved());
    }
}

impl Run {
    /// Finds out what is new in a service call, and makes the leaf's request of it unless the call
    /// was answered before: history first, and no trace of these layers.
    ///
    /// # Errors
    ///
    /// If the tool loop sent stored messages again and they cannot be told from new ones, or if a
    /// dangling call may not be replayed.
    pub(crate) fn start_call(
        self,
        request: &mut ChatRequest,
    ) -> Result<StartedCall, PersistenceError> {
        let ordinal = request.extensions.get::<ServiceCall>().map(|call| call.ordinal);
        let mut state = self.state();
        if self.0.is_alone && request.new_from > 0 {
            // The loop sends it with its first service call alone.
            state.above = request.messages.take(request.new_from);
        }
        let record = state.last_call.as_ref().filter(|record| Some(record.ordinal) == ordinal);
        let own = match record.map(|record| &record.outcome) {
            Some(Attempt::Answered { answer, write, .. }) => {
                let (answer, write) = (answer.clone(), write.clone());
                let again = self.submit_again(&state, ordinal, answer, write);
                return Ok(StartedCall::Answered(Box::new(again)));
            }
            Some(Attempt::Unanswered { rest }) => rest.clone(),
            // A run that nobody began above is resumed; what is stored of its input comes first.
            None if ordinal == Some(0) && self.0.is_alone => {
                own_messages(request).into_iter().skip(state.added.len()).collect()
            }
            None => self.unsent(&state, request)?,
        };
        let inputs = self.number(state.taken, own);
        state.open_replay = None;
        let replay = self.replay_with(&state, &inputs)?;
        let unsent = match (self.is_journaled(), ordinal) {
            // Its input is staged already, and new to the model all the same.
            (true, Some(0)) => own_messages(request).len(),
            (true, None) if state.last_call.is_none() => own_messages(request).len(),
            (true | false, Some(_) | None) => inputs.len(),
        };
        state.address_leaf(request, &replay, unsent);
        drop(state);
        // Without a layer above nobody knows when the run goes.
        let keeps_text = self.policy().keep_partial_text && !self.0.is_alone;
        let loop_policy = request.extensions.get::<LoopPolicy>().cloned();
        Ok(StartedCall::Call(Box::new(OpenCall {
            run: self,
            ordinal,
            inputs,
            replay,
            options: request.options.clone(),
            calls: loop_policy.as_ref().map(LoopPolicy::call_count),
            loop_policy,
            streamed: keeps_text.then(StreamedText::default),
            slot: Some(Ok(Slot::unbounded())),
        })))
    }

    /// The messages of a request that are not stored yet.
    fn unsent(
        &self,
        state: &State,
        request: &ChatRequest,
    ) -> Result<Vec<Arc<Message>>, PersistenceError> {
        let own = self.not_stored_of(state, own_messages(request));
        let is_later_call = !state.added.is_empty();
        if is_later_call
            && own.iter().any(|message| message.role == Role::Assistant && message.id.is_none())
        {
            return Err(PersistenceError::HistorySentAgain { key: self.key().clone() });
        }
        Ok(own)
    }

    /// Those of the loop's messages, which are in the run's order, that are not stored yet.
    pub(super) fn not_stored_of(
        &self,
        state: &State,
        mut own: Vec<Arc<Message>>,
    ) -> Vec<Arc<Message>> {
        let is_stored = |message: &Arc<Message>| is_stored(state, self, message);
        if let Some(last) = own.iter().rposition(is_stored) {
            own.drain(..=last);
        }
        if self.is_journaled() && state.last_call.is_none() {
            // The input is staged, although no call has carried it: a loop may have dropped its ids.
            let is_same = |(own, added): &(&Arc<Message>, &Arc<Message>)| {
                own.id.is_none() && own.role == added.role && own.parts == added.parts
            };
            let staged = own.iter().zip(&state.added).take_while(is_same).count();
            own.drain(..staged);
        }
        own
    }

    fn submit_again(
        &self,
        state: &State,
        ordinal: Option<u32>,
        answer: Answer,
        write: Option<Write>,
    ) -> StoredCall {
        let submission = match write {
            Some(write) => {
                let slot = Ok(Slot::unbounded());
                let writes = with_unsettled(state, write);
                Submission::submit(self.store(), self.store_failure(), slot, writes)
            }
            None => Submission::nothing(),
        };
        StoredCall { run: self.clone(), ordinal, answer, submission }
    }

    /// Takes messages into the run and submits them; returns the write, if there is something to
    /// write. Results that are left out of the history go into the record alone.
    pub(super) fn submit(
        &self,
        state: &mut State,
        slot: Result<Slot, StoreError>,
        to_store: ToStore,
    ) -> (Submission, Option<Write>) {
        let ToStore {
            messages,
            left_out,
            adopted,
            is_whole_run,
            starts,
            outcomes,
            close,
            ends_run,
            last_response,
        } = to_store;
        let change = match adopted {
            Some(Adopted { recording, service_id, change }) => {
                state.recording = recording;
                state.service_id.clone_from(&service_id);
                let is_known = state.stored_service_id == service_id;
                state.stored_service_id = service_id;
                change.filter(|_| !is_known)
            }
            None => None,
        };
        let next =
            MessageId { run: self.id(), index: u32::try_from(state.taken).unwrap_or(u32::MAX) };
        state.taken += messages.len();
        let mut messages = state.recording.select(messages, &state.replay);
        let citations = self.policy().replay.citations_at_save();
        let truncation = self.policy().truncation;
        let Composed { messages: mut stored, mut records } =
            state.compose(&messages, &left_out, citations.filter(|_| is_whole_run), truncation);
        state.outcome_rows(&outcomes, truncation, &mut records);
        state.note_end(records.rows());
        if ends_run
            && let Some(marker) =
                state.mark_end(&messages, &last_response, &mut stored, &mut records)
        {
            let marker = self.number(state.taken, vec![Arc::new(marker)]);
            state.taken += marker.len();
            stored.extend(marker.iter().cloned());
            messages.extend(marker);
        }
        let replaced = match (&mut state.journal, citations) {
            (Some(journal), Some(citations)) => {
                journal.leave_out_uncited(citations, close, &mut stored)
            }
            _ => Vec::new(),
        };
        let claims = match starts.as_slice() {
            [] => Vec::new(),
            starts => {
                let now = self.0.clock.now();
                state.note_started(starts);
                state.start_rows(starts, &messages, now, &mut records)
            }
        };
        let closes = close.is_some() && state.journal.as_ref().is_some_and(Journal::is_open);
        let records = records.into_rows();
        if stored.is_empty() && records.is_empty() && change.is_none() && !closes {
            return (Submission::nothing(), None);
        }
        // A claim that nobody knows of is none.
        let failure = if claims.is_empty() { self.store_failure() } else { StoreFailure::FailCall };
        let id = messages.first().and_then(|message| message.id).unwrap_or(next);
        let mut write = Write::new(self.key().clone(), id, state.revision, stored);
        if !claims.is_empty() {
            write = write.with_claims(claims);
        }
        if !replaced.is_empty() {
            write = write.replacing(replaced);
        }
        let write = match (&mut state.journal, change) {
            (Some(journal), change) => {
                let write = journal.stage(write, records, close, change);
                self.keep_lease(journal);
                write
            }
            (None, Some(change)) => write.with_tools(records).with_service_id(change),
            (None, None) => write.with_tools(records),
        };
        state.revision = write.result();
        state.added.extend(messages);
        let writes = with_unsettled(state, write.clone());
        (Submission::submit(self.store(), failure, slot, writes), Some(write))
    }
}

impl OpenCall {
    /// Takes a place in the store's queue, if there is one at once.
    pub(crate) fn try_reserve(&mut self) -> bool {
        let Some(slot) = self.run.operations().try_reserve() else { return false };
        self.slot = Some(Ok(slot));
        true
    }

    /// Waits for a place in the store's queue, before the model is paid.
    ///
    /// # Errors
    ///
    /// If the store takes no more writes and the policy is to fail.
    pub(crate) async fn reserve(&mut self) -> Result<(), PersistenceError> {
        match self.run.reserve().await {
            Ok(slot) => self.slot = Some(slot),
            Err(error) => {
                self.slot = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// What is new in the call.
    pub(crate) fn inputs(&self) -> &[Arc<Message>] {
        &self.inputs
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

    /// The conversation that it extends.
    pub(crate) fn key(&self) -> &ConversationKey {
        self.run.key()
    }

    /// The service has answered: submits inputs and answer together.
    ///
    /// If the answer's conversation id does not fit, by policy, nothing of the answer is written,
    /// and of the inputs the results of tools that have run go into the record. If a hook keeps
    /// nothing of a call that would wait for approval, the inputs are kept as of a call that failed.
    pub(crate) fn complete(mut self: Box<Self>, mut answer: Answer) -> CompletedCall {
        let run = self.run.clone();
        let slot = self.take_slot();
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut state = run.state();
        match self.attempted_meanwhile(&state) {
            Some(Attempt::Answered { answer, write, .. }) => {
                let (answer, write) = (answer.clone(), write.clone());
                let again = run.submit_again(&state, self.ordinal, answer, write);
                return CompletedCall::Submitted(Box::new(again));
            }
            Some(Attempt::Unanswered { .. }) => drop_taken(&state, &mut inputs),
            None => {}
        }
        let (service_id, recording) = (state.service_id.clone(), state.recording);
        let whole = || answer.clone();
        let adopted =
            match run.adopt_service_id(service_id.as_ref(), recording, &answer.finish, whole) {
                Ok(adopted) => adopted,
                Err(error) => {
                    state.refused = self.ordinal;
                    let submission = run.record_results(&mut state, slot, &inputs);
                    let refused = RefusedCall { error, submission };
                    return CompletedCall::Refused(Box::new(refused));
                }
            };
        let first = state.taken + inputs.len();
        let messages = run.number(first, std::mem::take(&mut answer.messages));
        answer.messages = match &self.loop_policy {
            Some(loop_policy) => loop_policy.rules().request_approvals(messages.clone()),
            None => request_approvals_of(messages.clone(), &self.options.tools),
        };
        if let Err(refused) = state.recorder.keep_pending_calls(&answer.messages) {
            drop(state);
            self.inputs = inputs;
            let submission = self.leave_after_failure(slot);
            answer.messages = messages;
            let error = run.pending_call_not_kept(refused, answer);
            return CompletedCall::Refused(Box::new(RefusedCall { error, submission }));
        }
        if adopted.service_id.is_none() && !self.options.is_background() {
            answer.finish.conversation_id = Some(ConversationId::LocalHistory);
        }
        let mut messages = inputs;
        messages.extend(answer.messages.iter().cloned());
        let mut to_store = ToStore { adopted: Some(adopted), ..ToStore::messages(messages) };
        state.partial_response = None;
        if let Some(journal) = &mut state.journal {
            journal.forget_partial_text();
        }
        let step = self.loop_policy.as_ref().map(|policy| policy.next_step(&answer.messages));
        to_store.ends_run = step.as_ref().is_some_and(NextStep::ends_run);
        if run.is_journaled() {
            to_store.starts = self.first_calls(step.as_ref(), &answer.messages);
            to_store.close = to_store.ends_run.then_some(Close::Commit);
        }
        let (submission, write) = run.submit(&mut state, slot, to_store);
        answer.messages.iter().for_each(|message| self.replay.push(message));
        std::mem::swap(&mut state.replay, &mut self.replay);
        let is_durable = submission.is_durable();
        if let Some(ordinal) = self.ordinal {
            state.keep_answer(ordinal, &answer, step, write.filter(|_| !is_durable));
        }
        if is_durable {
            state.settle(0, &mut answer);
            return CompletedCall::Durable(answer);
        }
        drop(state);
        let ordinal = self.ordinal;
        let submitted = StoredCall { run, ordinal, answer, submission };
        CompletedCall::Submitted(Box::new(submitted))
    }

    /// The calls that start once the answer is stored. A loop that says nothing of itself may run
    /// every tool that the answer asks for.
    fn first_calls(&self, step: Option<&NextStep>, answer: &[Arc<Message>]) -> Vec<CallOfRun> {
        match self.loop_policy.as_ref().zip(step) {
            Some((policy, step)) => policy.first_calls(step),
            None => pending_calls(answer).iter().filter_map(PendingCall::position).collect(),
        }
    }

    /// The service has failed: submits what is kept of the inputs, by policy, and waits.
    pub(crate) async fn fail(mut self: Box<Self>) {
        let slot = self.take_slot();
        let mut submission = self.leave_after_failure(slot);
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::error!(
                conversation = %self.run.key(),
                error = &source as &dyn std::error::Error,
                "the inputs of a failed service call could not be stored"
            );
        }
    }

    /// Submits what is kept of the inputs of a service call that came to no answer that can be
    /// stored, by policy.
    fn leave_after_failure(&mut self, slot: Result<Slot, StoreError>) -> Submission {
        if self.run.is_journaled() {
            self.leave_unanswered();
            return Submission::nothing();
        }
        let kept = self.run.policy().inputs_of_failed_call.count(&self.inputs);
        self.submit_inputs(slot, kept)
    }

    /// Journaled: everything worth keeping is staged, so that a retry finds its inputs here.
    fn leave_unanswered(&mut self) {
        let mut state = self.run.state();
        if let Some(Attempt::Answered { .. }) = self.attempted_meanwhile(&state) {
            return;
        }
        let text = self.streamed.take().and_then(|streamed| streamed.text());
        if let (Some(journal), Some(text)) = (&mut state.journal, text) {
            journal.keep_partial_text(text);
        }
        let Some(ordinal) = self.ordinal else { return };
        if self.attempted_meanwhile(&state).is_none() {
            let outcome = Attempt::Unanswered { rest: std::mem::take(&mut self.inputs) };
            state.last_call = Some(CallRecord { ordinal, outcome });
        }
    }

    /// The place in the queue, once; without it dropping the call stores nothing.
    fn take_slot(&mut self) -> Result<Slot, StoreError> {
        self.slot.take().unwrap_or(Err(StoreError::Closed))
    }

    /// What another attempt at the same call has come to since this one was begun, where somebody
    /// above makes a call twice at once.
    fn attempted_meanwhile<'a>(&self, state: &'a State) -> Option<&'a Attempt> {
        let record = state.last_call.as_ref()?;
        (Some(record.ordinal) == self.ordinal).then_some(&record.outcome)
    }

    /// Submits the first `count` inputs of a call that came to no answer.
    fn submit_inputs(&mut self, slot: Result<Slot, StoreError>, count: usize) -> Submission {
        let mut inputs = std::mem::take(&mut self.inputs);
        let rest = inputs.split_off(count.min(inputs.len()));
        let run = self.run.clone();
        let mut state = run.state();
        match self.attempted_meanwhile(&state) {
            Some(Attempt::Answered { .. }) => return Submission::nothing(),
            Some(Attempt::Unanswered { .. }) => drop_taken(&state, &mut inputs),
            None => {}
        }
        let text = self.streamed.take().and_then(|streamed| streamed.text());
        state.note_partial_response(text, &rest);
        if let Some(ordinal) = self.ordinal {
            let outcome = Attempt::Unanswered { rest };
            state.last_call = Some(CallRecord { ordinal, outcome });
        }
        if inputs.is_empty() {
            return Submission::nothing();
        }
        let to_store = ToStore::messages(inputs.clone());
        let (submission, write) = self.run.submit(&mut state, slot, to_store);
        state.unsettled.extend(write);
        inputs.iter().for_each(|message| state.replay.push(message));
        submission
    }
}

impl UnansweredInputs {
    /// How many of a call's inputs are stored, from the first.
    fn count(self, inputs: &[Arc<Message>]) -> usize {
        let is_result = |message: &Arc<Message>| message.role == Role::Tool;
        match self {
            Self::All => inputs.len(),
            Self::Results => inputs.iter().rposition(is_result).map_or(0, |last| last + 1),
            Self::None => 0,
        }
    }
}

impl Drop for OpenCall {
    /// The caller has gone away before the end of the answer: the inputs are stored by policy,
    /// whatever the cause was. Nothing can be awaited here, so the store's own task does it.
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if self.run.is_journaled() {
            return self.leave_unanswered();
        }
        let slot = slot.map(Slot::without_blocking);
        let kept = self.run.policy().inputs_of_dropped_call.count(&self.inputs);
        drop(self.submit_inputs(slot, kept));
    }
}

impl RefusedCall {
    /// Waits until the results are recorded. That they could not be is logged and no more: the
    /// caller has to know of the conflict first.
    pub(crate) async fn refuse(mut self: Box<Self>) -> PersistenceError {
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
    pub(crate) async fn durable(mut self: Box<Self>) -> Result<Answer, PersistenceError> {
        match self.submission.outcome().await {
            Ok(unsaved) => {
                let Self { run, ordinal, mut answer, .. } = *self;
                let mut state = run.state();
                if unsaved == 0 {
                    state.forget_write(ordinal);
                }
                state.settle(unsaved, &mut answer);
                drop(state);
                Ok(answer)
            }
            Err(failed) => {
                self.run.state().refused = self.ordinal;
                Err(self.run.not_stored(failed, Some(self.answer)))
            }
        }
    }
}

impl Run {
    /// What follows the answer of a service call, if it was decided when the answer was stored.
    pub(crate) fn step_after(&self, ordinal: u32, answer: &[Arc<Message>]) -> Option<NextStep> {
        self.state().last_call.as_ref()?.step_after(ordinal, answer)
    }

    /// A place in the store's queue. Under [`StoreFailure::Continue`] the failure to get one is
    /// the outcome of the write it was for.
    ///
    /// A run inside of another waits for none: those that it is inside of may hold every place
    /// until it has ended.
    pub(crate) async fn reserve(&self) -> Result<Result<Slot, StoreError>, PersistenceError> {
        let place = self.operations().reserve();
        let place = match self.0.is_nested {
            true => place.now_or_never().unwrap_or_else(|| Ok(Slot::unbounded())),
            false => place.await,
        };
        match (place, self.store_failure()) {
            (Err(source), StoreFailure::FailCall) => {
                Err(self.not_stored(FailedSubmission { source, unsaved: Vec::new() }, None))
            }
            (slot, _) => Ok(slot),
        }
    }

    pub(super) fn not_stored(
        &self,
        failed: FailedSubmission,
        mut answer: Option<Answer>,
    ) -> PersistenceError {
        if let Some(answer) = &mut answer {
            strip_sentinel(answer);
        }
        let FailedSubmission { source, unsaved } = failed;
        let key = self.key().clone();
        PersistenceError::NotStored(Box::new(NotStored { key, source, unsaved, answer }))
    }
}

/// The sentinel is for the tool loop alone.
pub(crate) fn strip_sentinel(answer: &mut Answer) {
    if answer.finish.conversation_id == Some(ConversationId::LocalHistory) {
        answer.finish.conversation_id = None;
    }
}

/// Leaves out inputs that another attempt at the same call has submitted.
fn drop_taken(state: &State, inputs: &mut Vec<Arc<Message>>) {
    inputs.retain(|message| message.id.is_none_or(|id| id.index as usize >= state.taken));
}

/// A write after those of this run whose outcome nobody has waited for. The store recognises what
/// it has; what it refused is submitted again.
fn with_unsettled(state: &State, write: Write) -> Vec<Write> {
    let mut writes = Vec::with_capacity(state.unsettled.len() + 1);
    writes.extend(state.unsettled.iter().cloned());
    writes.push(write);
    writes
}

/// Whether a message that came with an id is stored: the id names a message of this run with the
/// same content, or with what hooks have left of it, or one of the loaded history.
fn is_stored(state: &State, run: &Run, message: &Arc<Message>) -> bool {
    let Some(id) = message.id else { return false };
    if id.run == run.id() {
        if id.index as usize >= state.taken {
            return false;
        }
        let place = state.added.partition_point(|added| added.id < message.id);
        let added = state.added.get(place);
        return added.is_some_and(|added| {
            let is_stored_form = || has_asked_hooks(added) && added.role == message.role;
            Arc::ptr_eq(added, message) || added == message || is_stored_form()
        });
    }
    state.position_in_history(id).is_some()
}
