//! The run: the one writer of everything a request adds to its conversation.
//!
//! `PerRunPersistence` begins a [`Run`] and puts it in the request's extensions; the tool loop and
//! `PerServiceCallPersistence` find it there. It holds what was loaded, what was added since, and
//! the revision that the next write must expect, so the history is read once per run and never
//! again.

mod added_before;
mod answered_calls;
mod answered_in_order;
mod begin;
mod compaction;
mod finish;
mod held_calls;
mod history;
mod hooks;
mod journal;
mod leaf_request;
mod loaded;
mod missing_results;
mod of_loop;
mod partial_text;
mod prior_call_results;
mod record;
mod records;
mod repeated;
mod run_end;
mod service_call;
mod service_id;
mod stop;
mod stored_messages;
mod submission;
mod tool_events;
mod unsubmitted_results;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tower_chat_core::{
    Answer, ApprovalRequest, CallPosition, Conversation, ConversationKey, Message, MessageId,
    Messages, Part, RunId, Saved, ToolResult,
    store::{HistoryStore, Revision, Write},
};

use self::submission::Submission;
pub(crate) use self::{
    begin::{Settings, head_of, shared},
    partial_text::partial_message,
    prior_call_results::{by_call, mark_statuses, rows_of_prior_calls},
    record::is_without_calls,
    repeated::Caller,
};
pub(crate) use self::{
    finish::OpenRun,
    journal::{CallOutcome, InterruptedRun, LeaveCause},
    missing_results::{NEVER_RUN, missing_results},
    of_loop::{Begun, RunOfLoop},
    service_call::{CompletedCall, OpenCall, StartedCall, strip_sentinel},
};
use self::{
    journal::Journal,
    loaded::Loaded,
    partial_text::PartialResponse,
    record::{PendingCallNotKept, Recorder, calls_without_arguments},
    service_call::CallRecord,
    service_id::Recording,
    tool_events::PriorAttempts,
};
use crate::{
    Clock, PersistenceError, PersistenceMode, PersistencePolicy, Tool, Tools,
    approval::{find_request, trailing_result_of},
    replay::{PendingApproval, PendingBatch, Replay},
    tool::{CallOfRun, NotKept, ToolReports},
};

/// A stored result that the model has not answered to.
pub(crate) enum UnseenResult {
    /// The replay shows it.
    InReplay,
    /// The service keeps the history, and has not been sent it.
    SendAgain(Box<(PendingApproval, ToolResult)>),
}

/// A run under way: a request extension that the layers of one stack share.
///
/// Clones are the same run.
#[derive(Clone)]
pub struct Run(Arc<Shared>);

struct Shared {
    conversation: Conversation,
    mode: PersistenceMode,
    policy: PersistencePolicy,
    store: Arc<dyn HistoryStore>,
    clock: Clock,
    /// No layer above the tool loop has begun the run.
    is_alone: bool,
    /// Its first answer is one that the service makes in the background. Decided once: later
    /// service calls of the run carry no continuation any more.
    is_background: bool,
    /// It was begun by a tool of another run.
    is_nested: bool,
    persister_reported: AtomicBool,
    persister_missed: AtomicBool,
    state: Mutex<State>,
    /// The last field, so that nothing else of the run has these messages when they are let go.
    _loaded: Loaded,
}

/// What is known of the conversation and of this run's part in it.
struct State {
    /// The stored history that was loaded; empty where the service keeps it.
    history: Messages,
    /// How many messages of the conversation were pruned before these.
    pruned: u64,
    /// The replay of the history and of what this run has added since.
    replay: Replay,
    /// What the next write must expect.
    revision: Revision,
    /// The id under which the service keeps the history, if it does.
    service_id: Option<Arc<str>>,
    /// The same as far as the store knows it; not yet one that the request alone has named.
    stored_service_id: Option<Arc<str>>,
    recording: Recording,
    /// The id that each service call's answer names is compared as it comes, so the end of a run
    /// that is written at its end has nothing to compare.
    checks_each_answer: bool,
    /// What this run has submitted to the store, in order.
    added: Vec<Arc<Message>>,
    /// How many messages the run has taken in, stored or not: the position of the next one.
    taken: usize,
    /// Where a run that is written at its end numbers its answer from: after what is stored of it
    /// and after its input, which it takes in at its end.
    answer_from: usize,
    /// Messages that wait in the store's outbox.
    unsaved: usize,
    /// Writes whose outcome nobody has waited for: they are submitted again with the next, in case
    /// the store has refused them.
    unsettled: Vec<Write>,
    /// The results in the record of the calls with which the run, sent again, had ended, if a tool
    /// has ended it.
    recorded_end: Option<Vec<ToolResult>>,
    /// How many tool calls of the run had been started, of those that readers saw when it began.
    tool_calls_before: usize,
    /// What is submitted of the run says that it is complete.
    is_end_stored: bool,
    /// Another run has written after what this run, sent again, had stored.
    is_overtaken: bool,
    last_call: Option<CallRecord>,
    /// The last service call whose answer was refused, here or by the store: nothing of it is
    /// stored.
    refused: Option<u32>,
    /// In per-service-call mode alone: what is kept of the last call, if it came to no answer.
    partial_response: Option<PartialResponse>,
    /// In journaled mode alone.
    journal: Option<Journal>,
    prior_attempts: PriorAttempts,
    open_replay: Option<Replay>,
    recorder: Recorder,
    /// What a layer above put before the run's input: it stays first in every service call,
    /// although the tool loop sends it only once.
    above: Messages,
    /// What the last run answered, where the request repeats everything but that.
    last_answer: Option<Vec<Arc<Message>>>,
}

/// The number of a service call within its run, from 0: a request extension that a tool loop sets.
///
/// A retry between the loop and the persister sends the same number again, and what is durable
/// already is not stored twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceCall {
    /// How many service calls of the run came before.
    pub ordinal: u32,
}

/// A request extension that says a `PerServiceCallPersistence` has handled the request already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PersisterAbove;

impl Run {
    /// The run's id.
    pub fn id(&self) -> RunId {
        self.0.conversation.run
    }

    /// Whether no layer above the tool loop has begun it.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.is_alone
    }

    /// The conversation it extends.
    pub fn key(&self) -> &ConversationKey {
        &self.0.conversation.key
    }

    /// When its messages become durable.
    pub fn mode(&self) -> PersistenceMode {
        self.0.mode
    }

    /// Whether history is put before each service call below the tool loop, so that the loop
    /// sends only what is new.
    pub fn persists_below(&self) -> bool {
        match self.0.mode {
            PersistenceMode::PerRun => false,
            PersistenceMode::PerServiceCall | PersistenceMode::Journaled => true,
        }
    }

    /// Whether the run is appended at its end, by one write: in per-run mode, and for answers that
    /// the service makes in the background.
    pub(crate) fn is_written_at_end(&self) -> bool {
        !self.persists_below() || (self.0.is_background && !self.0.is_alone)
    }

    /// The stored approval requests that nobody has answered yet, a batch per answer of the model.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        self.state().replay.pending_approvals()
    }

    /// Whether a hook has changed the stored arguments of a call in the loaded history.
    pub(crate) fn has_changed_arguments(&self, (message, index): CallOfRun) -> bool {
        let state = self.state();
        let position = state.position_in_history(message);
        let stored = position.and_then(|position| state.history.get(position));
        stored
            .is_some_and(|stored| calls_without_arguments(stored).any(|position| position == index))
    }

    /// Checks that what waits for approval in these messages of an answer can be run later.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::PendingCallNotKept`], with the answer as `unasked` holds it.
    pub(crate) fn keep_pending_calls(
        &self,
        messages: &[Arc<Message>],
        unasked: impl FnOnce() -> Answer,
    ) -> Result<(), PersistenceError> {
        let kept = self.state().recorder.keep_pending_calls(messages);
        kept.map_err(|refused| self.pending_call_not_kept(refused, unasked()))
    }

    fn pending_call_not_kept(
        &self,
        refused: PendingCallNotKept,
        mut answer: Answer,
    ) -> PersistenceError {
        let PendingCallNotKept { tool, call_id, reason } = refused;
        strip_sentinel(&mut answer);
        PersistenceError::PendingCallNotKept {
            key: self.key().clone(),
            tool,
            call_id,
            reason: match reason {
                NotKept::Forgotten => "forgets it".to_owned(),
                NotKept::HookFailed(failure) => format!("failed ({failure})"),
            },
            answer: Box::new(answer),
        }
    }

    /// The batches that wait for approval, in view of the messages that a request brings: their
    /// results may answer calls of a batch.
    pub(crate) fn pending_batches<'a>(
        &self,
        own: impl Iterator<Item = &'a Arc<Message>>,
    ) -> Vec<PendingBatch> {
        let state = self.state();
        // The staged input of a journaled run is part of the replay already.
        let is_taken = |id: MessageId| id.run == self.id() && (id.index as usize) < state.taken;
        let mut replay = state.replay.clone();
        own.filter(|message| !message.id.is_some_and(is_taken))
            .for_each(|message| replay.push(message));
        replay.pending_batches()
    }

    /// What the record knew of a call that waits for approval when the run began, if it was begun.
    pub(crate) fn known_approved(&self, call: CallOfRun) -> Option<CallOutcome> {
        self.state().prior_attempts.call(call)
    }

    /// Whether the record holds the result of a call that waits for approval: it was run, and its
    /// result became part of no message.
    pub(crate) fn has_recorded_result(&self, waiting: &PendingApproval) -> bool {
        waiting.call_position.is_some_and(|call| self.state().prior_attempts.has_result(call))
    }

    /// Whether a stored message holds an approval request of this id.
    pub(crate) fn holds_approval_request(&self, id: &str) -> bool {
        self.state().approval_request(id).is_some()
    }

    /// The result of the call of a stored approval request, if the model has said nothing since it
    /// was stored: the run that the call was approved for has not come to its end.
    ///
    /// A run goes on from there. The result is sent again where the service keeps the history.
    pub(crate) fn unseen_result_of(&self, request: &str) -> Option<UnseenResult> {
        let state = self.state();
        let ((message, index), request) = state.approval_request(request)?;
        let call = CallPosition { message, index: u32::try_from(index).ok()? };
        let result = match state.recording {
            Recording::History | Recording::RecordOnly => {
                trailing_result_of(state.history.iter().rev(), Some(call), &request)
            }
            // What the model said is not stored: of a run that is sent again the results alone are.
            Recording::Approvals => {
                trailing_result_of(state.added.iter().rev(), Some(call), &request)
            }
        }?
        .clone();
        let call_id = result.call_id.clone().unwrap_or_default();
        let waiting = PendingApproval { call_position: Some((message, index)), request, call_id };
        Some(match state.recording {
            Recording::History => UnseenResult::InReplay,
            Recording::RecordOnly | Recording::Approvals => {
                UnseenResult::SendAgain(Box::new((waiting, result)))
            }
        })
    }

    /// The messages with answers to approval requests that the run has stored: what they let run
    /// and has not run goes on waiting until somebody sends the run again.
    pub(crate) fn stored_approvals(&self) -> Vec<Arc<Message>> {
        let state = self.state();
        state.added.iter().filter(|message| answers_approvals([*message])).cloned().collect()
    }

    /// The open end of the stored history, where the input answers approval requests in it: a
    /// tool loop pushes its own messages to it and sends the view.
    pub(crate) fn open_replay(&self) -> Option<Replay> {
        self.state().open_replay.clone()
    }

    /// Checks, once a service call was made, that the layer which should store it is there.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::PersisterMissing`], in journaled mode and under
    /// [`MissingPersister::Fail`](crate::MissingPersister::Fail); otherwise it is logged, once a
    /// run.
    pub fn check_persister(&self) -> Result<(), PersistenceError> {
        if !self.persists_below() || self.0.persister_reported.load(Ordering::Acquire) {
            return Ok(());
        }
        let missing = self.persister_missing();
        if self.fails_without_persister() {
            return Err(missing);
        }
        if !self.0.persister_missed.swap(true, Ordering::AcqRel) {
            tracing::warn!(conversation = %self.key(), "{missing}");
        }
        Ok(())
    }

    /// Whether the run fails where no layer below the tool loop stores it.
    pub(crate) fn fails_without_persister(&self) -> bool {
        self.0.policy.fails_without_persister(self.0.mode)
    }

    pub(crate) fn persister_missing(&self) -> PersistenceError {
        PersistenceError::PersisterMissing { key: self.key().clone() }
    }

    /// Notes that a persister below the tool loop is at work.
    pub(crate) fn report_persister(&self) {
        self.0.persister_reported.store(true, Ordering::Release);
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Whether something of the run is stored, or staged.
    pub(crate) fn has_stored(&self) -> bool {
        !self.state().added.is_empty()
    }

    /// How many messages the run has taken in.
    pub(crate) fn taken(&self) -> usize {
        self.state().taken
    }

    /// The index of the first message that the tool loop adds to a run that is written at its end.
    /// The request does not say it: among its messages may be some of the history, which the input
    /// answers.
    pub(crate) fn answer_from(&self) -> usize {
        self.state().answer_from
    }

    /// Takes note of the tools of the next service call, for their hooks.
    pub(crate) fn use_tools(&self, tools: &Tools) {
        self.state().recorder.hooks.use_tools(tools);
    }

    /// Keeps the tools of the calls in an answer, for their hooks, whatever set is used later.
    pub(crate) fn pin_calls(&self, answer: &[Arc<Message>]) {
        let mut state = self.state();
        answer.iter().for_each(|message| state.recorder.hooks.pin_calls(message));
    }

    /// Keeps the tool of a call that an earlier run has asked for, or that there was none.
    pub(crate) fn pin_tool(&self, call: CallOfRun, tool: Option<Arc<dyn Tool>>) {
        self.state().recorder.hooks.pin(call, tool);
    }

    /// Takes note of what a tool loop knows of the results in a message, in their order.
    pub(crate) fn report_tools(&self, message: MessageId, reports: ToolReports) {
        self.state().recorder.report(message, reports);
    }

    /// The number after the highest that a source of the conversation has, in what was loaded, in
    /// what the run has added and in these messages of its request.
    pub(crate) fn next_source_number(&self, own: &Messages) -> u64 {
        let citations = self.policy().replay.citations.clone().unwrap_or_default();
        let state = self.state();
        let (history, added) = (state.history.clone(), state.added.iter().cloned().collect());
        drop(state);
        let next = [&history, &added, own].map(|messages| citations.next_number(messages));
        next.into_iter().max().unwrap_or_default()
    }

    /// What became of the run's messages so far.
    pub(crate) fn saved(&self) -> Saved {
        self.state().saved()
    }

    pub(crate) fn store(&self) -> &Arc<dyn HistoryStore> {
        &self.0.store
    }

    pub(crate) fn policy(&self) -> &PersistencePolicy {
        &self.0.policy
    }

    /// The store itself: through the pointer's own implementation of the trait the future of an
    /// operation would be in two boxes.
    fn operations(&self) -> &dyn HistoryStore {
        &*self.0.store
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives messages their ids, counting on from a position, and the time at which they are added.
    fn number(&self, first: usize, mut messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        let run = self.id();
        let now = self.0.clock.whole_milliseconds();
        for (message, position) in messages.iter_mut().zip(first..) {
            let id = MessageId { run, index: u32::try_from(position).unwrap_or(u32::MAX) };
            if message.id != Some(id) || message.added_at.is_none() {
                let message = Arc::make_mut(message);
                message.id = Some(id);
                message.added_at = message.added_at.or(now);
            }
        }
        messages
    }
}

impl State {
    /// A stored approval request, with the position of its call.
    fn approval_request(&self, id: &str) -> Option<(CallOfRun, ApprovalRequest)> {
        let stored = self.added.iter().rev().chain(self.history.iter().rev());
        let mut found = stored.filter_map(|message| {
            let (index, request) = find_request(message, id)?;
            Some(((message.id?, index as usize), request.clone()))
        });
        found.next()
    }

    /// What became of the run's messages so far.
    fn saved(&self) -> Saved {
        Saved::new(self.added.len().saturating_sub(self.unsaved), self.unsaved)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("conversation", &self.0.conversation)
            .field("mode", &self.0.mode)
            .finish_non_exhaustive()
    }
}

/// Whether somebody answers an approval request in these messages.
pub(crate) fn answers_approvals<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> bool {
    messages
        .into_iter()
        .flat_map(|message| &message.parts)
        .any(|part| matches!(part, Part::ApprovalResponse(_)))
}
