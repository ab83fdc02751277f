//! The run log: the state of a run's conversation, messages and calls.

use std::{collections::HashSet, sync::Arc, time::SystemTime};

use tower_chat_core::{
    Answer, Message, MessageId, Messages, PersistenceMode, RunId, Saved, ToolResult, Usage,
    store::{Revision, author::Write},
};

use super::{
    call_records::CallRecords,
    calls::{Attempt, ServiceCalls},
    claims::ApprovedCalls,
    conversation::LoadedConversation,
    fenced_attempt::FencedAttempt,
    history_in_request::HistoryInRequest,
    journaled::{InterruptedRun, Journal},
    prior_attempts::PriorAttempts,
    recording::Recording,
    refusals::RefusedSoFar,
};
use crate::{
    Tool, Tools,
    next_step::LoopPolicy,
    replay::Replay,
    tool::{CallOfRun, ToolReports},
};

/// The state of a run's messages and calls. Contains no store, no clock and no futures.
/// [`apply`](super::events::apply) uses the log to determine the writes.
pub(crate) struct RunLog {
    pub(super) run: RunId,
    /// The mode in which the run is stored. The table in `docs/contract.md` has one column for each
    /// mode.
    pub(super) mode: PersistenceMode,
    /// Whether no layer above the tool loop has begun the run.
    pub(crate) is_alone: bool,
    /// For the run of a tool loop without a layer above: the stored answer, if the store already
    /// contained the complete run before the first service call.
    pub(crate) answer: Option<Answer>,
    pub(super) conversation: LoadedConversation,
    pub(super) stored_before: StoredBefore,
    pub(crate) calls: ServiceCalls,
    /// The messages that tools of this attempt have queued. If a service call fails, queued
    /// messages are stored under the same conditions as results of tools, because the tools do not
    /// run again.
    pub(crate) queued_by_tools: HashSet<MessageId>,
    pub(super) approved_calls: ApprovedCalls,
    pub(super) call_records: CallRecords,
    /// The rules by which the tool loop decides the next step after the service call that it makes.
    /// `None` if a tool loop of another crate executes the run.
    pub(crate) loop_policy: Option<LoopPolicy>,
    /// The recorded state, when the run began, of the calls that wait for approval.
    pub(super) prior_attempts: PriorAttempts,
    /// The number of messages of the conversation in the store's outbox.
    pub(super) unsaved: usize,
    /// Writes after which the run has continued even if the store has refused them. These writes
    /// are submitted again together with the next write.
    pub(super) unsettled: Vec<Write>,
    /// The [refusal marks](tower_chat_core::RefusalMark) for content that services have refused.
    pub(super) refused: RefusedSoFar,
    /// Whether a submitted write marks the run as complete.
    pub(super) is_end_stored: bool,
    /// Whether a persister handles the run's service calls. The persister is a layer below the tool
    /// loop that has received a request of the run, or the tool loop itself if the run is stored at
    /// its end.
    pub(crate) has_persister: bool,
    /// Whether the tool loop itself acts as the persister. The tool loop does this if the run is
    /// stored at its end and the loop has found no persister below.
    pub(crate) is_persisted_by_loop: bool,
    /// Whether a service call was made that no persister below the tool loop has handled.
    pub(super) is_persister_missed: bool,
    /// The history that a layer has put before the input in the request. A tool loop or a persister
    /// below that adds the history to each service call removes these messages from the request.
    pub(super) history_in_request: HistoryInRequest,
    /// The digest of the user's messages in the input. The digest is stored with the first message
    /// of the run.
    pub(super) input_digest: Option<String>,
    /// The state of a run in per-run mode.
    pub(super) held: HeldRun,
    /// In per-service-call mode: the received text of the last service call, if that call failed. The
    /// text is stored when the run ends, because a retry below the tool loop may still return an answer.
    pub(super) partial_text: Option<Arc<str>>,
    /// The state of a run in journaled mode.
    pub(super) journal: Option<Box<Journal>>,
    /// In the modes other than journaled mode: the fenced attempt that the next write begins.
    pub(super) fenced: Option<FencedAttempt>,
    /// The usage of the summaries that this attempt has made, until the answer contains it.
    pub(super) usage_of_summaries: Usage,
}

/// The stored part of a run that the request sends again.
#[derive(Default)]
pub(super) struct StoredBefore {
    /// If a tool has ended the run, or if the calls of the last answer were returned to the caller:
    /// the results that the record contains for these calls.
    pub(super) recorded_end: Option<Vec<ToolResult>>,
    /// The number of the run's tool calls that have started. Does not include calls in staged
    /// messages.
    pub(super) tool_calls: usize,
    /// Whether another run has written messages after the stored messages of this run.
    pub(super) is_overtaken: bool,
    /// The answer of the previous run, if the request repeats all stored messages except this answer.
    pub(super) last_answer: Option<Vec<Arc<Message>>>,
    /// Whether the request was compared with the stored messages. The request then contains only
    /// new messages.
    pub(super) is_observed: bool,
    /// Whether the request repeats an earlier service call.
    pub(super) is_repeated: bool,
}

/// The messages of a run in per-run mode that no write has stored yet. One write stores all these
/// messages at the end of the run.
///
/// The messages of answered service calls are in `LoadedConversation::added`, so that the request
/// of a service call is built in the same way in each mode.
#[derive(Default)]
pub(super) struct HeldRun {
    /// The input of the run.
    pub(super) input: Vec<Arc<Message>>,
    /// The state of the conversation before the first held message. `None` if the run holds no
    /// messages of a service call.
    pub(super) before: Option<BeforeHeld>,
    /// Whether the tool loop has sent messages that do not continue the messages of its earlier
    /// service calls. From then on, messages of service calls are not held.
    pub(super) is_broken: bool,
}

/// The state of a conversation before a run has added the messages of its first service call.
pub(super) struct BeforeHeld {
    pub(super) added: usize,
    pub(super) assigned_ids: usize,
    pub(super) replay: Replay,
}

impl RunLog {
    /// Creates the log of a run whose conversation is not loaded.
    pub(super) fn without_store(run: RunId) -> Self {
        let conversation = LoadedConversation {
            history: Messages::new(),
            pruned: 0,
            skipped: 0,
            next_range: None,
            has_range: false,
            needs_all_later: false,
            next_source: 0,
            replay: Replay::lenient(),
            revision: Revision::ABSENT,
            service_id: None,
            stored_service_id: None,
            recording: Recording::History,
            added: Vec::new(),
            assigned_ids: 0,
            rewrites: 0,
            summary: None,
            summarizable: None,
        };
        let mode = PersistenceMode::PerServiceCall;
        let log = Self::new(run, mode, conversation, CallRecords::default());
        Self { is_alone: true, ..log }
    }

    /// Creates the log of a run that has no events yet, with the conversation as it was loaded.
    pub(super) fn new(
        run: RunId,
        mode: PersistenceMode,
        conversation: LoadedConversation,
        call_records: CallRecords,
    ) -> Self {
        Self {
            run,
            mode,
            is_alone: false,
            answer: None,
            refused: RefusedSoFar::stored(conversation.replay.refused()),
            conversation,
            stored_before: StoredBefore::default(),
            calls: ServiceCalls::default(),
            queued_by_tools: HashSet::new(),
            approved_calls: ApprovedCalls::default(),
            call_records,
            loop_policy: None,
            prior_attempts: PriorAttempts::default(),
            unsaved: 0,
            unsettled: Vec::new(),
            is_end_stored: false,
            has_persister: false,
            is_persisted_by_loop: false,
            is_persister_missed: false,
            history_in_request: HistoryInRequest::default(),
            input_digest: None,
            held: HeldRun::default(),
            partial_text: None,
            journal: None,
            fenced: None,
            usage_of_summaries: Usage::default(),
        }
    }

    /// Returns the number of the run's stored messages, and the number of messages in the outbox.
    pub(crate) fn saved(&self) -> Saved {
        Saved::new(self.submitted().saturating_sub(self.unsaved), self.unsaved)
    }

    /// Returns whether the run is an open run in the store and this attempt works on it.
    pub(super) fn is_open(&self) -> bool {
        self.journal.as_deref().is_some_and(Journal::is_open)
    }

    /// Removes the partial text of a service call, because a message of an answer contains the
    /// text.
    pub(super) fn forget_partial_text(&mut self) {
        self.partial_text = None;
        if let Some(journal) = self.journal.as_deref_mut() {
            journal.forget_partial_text();
        }
    }

    /// Adds the number of `messages` to the number of the run's messages, and sets the ids of the
    /// messages unless the store sets them.
    pub(super) fn push(
        &mut self,
        messages: Vec<Arc<Message>>,
        is_numbered_by_store: bool,
        now: Option<SystemTime>,
    ) -> Vec<Arc<Message>> {
        let first = self.conversation.assigned_ids;
        self.conversation.assigned_ids += messages.len();
        match is_numbered_by_store {
            true => messages,
            false => self.number(first, messages, now),
        }
    }

    /// Sets the ids of messages, with indices from `first` on. Sets `added_at` to `now` in each
    /// message without this time.
    pub(super) fn number(
        &self,
        first: usize,
        mut messages: Vec<Arc<Message>>,
        now: Option<SystemTime>,
    ) -> Vec<Arc<Message>> {
        for (message, position) in messages.iter_mut().zip(first..) {
            let index = u32::try_from(position).unwrap_or(u32::MAX);
            let id = MessageId { run: self.run, index };
            if message.id != Some(id) || message.added_at.is_none() {
                let message = Arc::make_mut(message);
                message.id = Some(id);
                message.added_at = message.added_at.or(now);
            }
        }
        messages
    }

    /// Returns whether the run has already assigned the id of a message.
    pub(super) fn has_assigned_id(&self, message: &Message) -> bool {
        let is_of_run = |id: &MessageId| id.run == self.run;
        let id = message.id.filter(is_of_run);
        id.is_some_and(|id| (id.index as usize) < self.conversation.assigned_ids)
    }

    /// If an earlier attempt at the same service call has failed, removes from `inputs` the
    /// messages that this earlier attempt has submitted.
    pub(super) fn leave_out_submitted(&self, ordinal: Option<u32>, inputs: &mut Vec<Arc<Message>>) {
        if let Some(Attempt::Unanswered { .. }) = self.calls.attempt(ordinal) {
            inputs.retain(|message| !self.has_assigned_id(message));
        }
    }

    /// Returns the id of the message with this sequence number. Finds messages of the loaded
    /// history, and those messages that contain calls and were stored by this attempt.
    pub(super) fn id_at(&self, sequence: u64) -> Option<MessageId> {
        let of_attempt = self.call_records.id_at(sequence);
        of_attempt.or_else(|| self.conversation.message_at(sequence)?.id)
    }

    /// Returns whether a message of the run is stored or staged.
    pub(crate) fn has_stored(&self) -> bool {
        !self.conversation.added.is_empty()
    }

    /// Returns the number of messages to which the run has given an index.
    pub(crate) fn assigned_ids(&self) -> usize {
        self.conversation.assigned_ids
    }

    /// Stores the tools of the next service call. The run calls the hooks of these tools.
    pub(crate) fn use_tools(&mut self, tools: &Tools) {
        self.call_records.hooks.use_tools(tools);
    }

    /// Stores which tools the calls in an answer use. The run calls the hooks of these tools even
    /// if a later service call has another set of tools.
    pub(crate) fn pin_calls(&mut self, answer: &[Arc<Message>]) {
        answer.iter().for_each(|message| self.call_records.hooks.pin_calls(message));
    }

    /// Stores which tool a call of an earlier run uses. `None` means that the call has no tool.
    pub(crate) fn pin_tool(&mut self, call: CallOfRun, tool: Option<Arc<dyn Tool>>) {
        self.call_records.hooks.pin(call, tool);
    }

    /// Stores the tool loop's reports about the results in a message, in the order of the results.
    pub(crate) fn report_tools(&mut self, message: MessageId, reports: ToolReports) {
        self.call_records.report(message, reports);
    }

    /// Returns the state that earlier attempts at the run have stored, with the numbers of rounds
    /// and tool calls. Later calls of this function return the state without the last round.
    pub(crate) fn take_interrupted(&mut self) -> InterruptedRun {
        let staged = self.journal.as_deref_mut().and_then(|journal| journal.take_interrupted());
        let mut interrupted = staged.unwrap_or_default();
        interrupted.rounds = self.call_records.rounds_before;
        interrupted.tool_calls += self.stored_before.tool_calls;
        interrupted
    }
}
