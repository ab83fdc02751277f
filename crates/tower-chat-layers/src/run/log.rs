//! What a run knows of its conversation, and of its own part in it.

use std::{collections::HashSet, sync::Arc, time::SystemTime};

use tower_chat_core::{
    Message, MessageId, Messages, PersistenceMode, Role, RunId, Saved, ToolResult,
    store::{Revision, ServiceIdChange, author::Write},
};

use super::{
    activity::UntoldUsage,
    approved_calls::ApprovedCalls,
    call_records::CallRecords,
    journaled::Journal,
    last_call::{Attempt, LastCall},
    prior_attempts::PriorAttempts,
    refused_content::RefusedSoFar,
    service_id::{Adopted, Recording},
    whole_run::WholeRun,
};
use crate::{
    Tool, Tools,
    replay::Replay,
    tool::{CallOfRun, ToolReports},
};

/// Everything that a run knows of its messages and its calls. It has no store, no clock and no futures:
/// [`apply`](super::events::apply) decides with it what is written.
pub(crate) struct RunLog {
    pub(super) run: RunId,
    /// How the run is stored: the column of the contract that holds for it.
    pub(super) mode: PersistenceMode,
    pub(super) conversation: LoadedConversation,
    pub(super) stored_before: StoredBefore,
    pub(super) calls: ServiceCalls,
    /// The messages that tools of this attempt have queued.
    pub(super) queued_by_tools: HashSet<MessageId>,
    pub(super) approved_calls: ApprovedCalls,
    pub(super) call_records: CallRecords,
    /// What the record said, when the run began, of calls that wait for approval.
    pub(super) prior_attempts: PriorAttempts,
    /// Messages that wait in the store's outbox.
    pub(super) unsaved: usize,
    /// Writes whose outcome nobody has waited for: they are submitted again with the next, in case
    /// the store has refused them.
    pub(super) unsettled: Vec<Write>,
    /// The content of messages that services have refused.
    pub(super) refused: RefusedSoFar,
    /// What is submitted of the run says that it is complete.
    pub(super) is_end_stored: bool,
    /// A persister below the tool loop is at work.
    pub(super) is_persister_reported: bool,
    /// A service call was made, and no persister below the tool loop had reported.
    pub(super) is_persister_missed: bool,
    /// The digest of what the user says in the input, which is stored with the first message.
    pub(super) input_digest: Option<String>,
    /// In per-run mode.
    pub(super) whole_run: WholeRun,
    /// The text of the last service call, if it came to no answer, for when the run goes: a retry below
    /// the tool loop may still have an answer. In per-service-call mode.
    pub(super) partial_text: Option<Arc<str>>,
    /// In journaled mode.
    pub(super) journal: Option<Box<Journal>>,
}

/// The conversation as the run has loaded and extended it.
pub(super) struct LoadedConversation {
    /// The stored history that was loaded; empty where the service keeps it.
    pub(super) history: Messages,
    /// How many messages of the conversation were pruned before these.
    pub(super) pruned: u64,
    /// The replay of the history and of what this run has added since.
    pub(super) replay: Replay,
    /// What the next write must expect.
    pub(super) revision: Revision,
    /// The id under which the service keeps the history, if it does.
    pub(super) service_id: Option<Arc<str>>,
    /// The same as far as the store knows it; not yet one that the request alone has named.
    pub(super) stored_service_id: Option<Arc<str>>,
    pub(super) recording: Recording,
    /// What this run has submitted to the store, in order.
    pub(super) added: Vec<Arc<Message>>,
    /// How many messages the run has taken in, stored or not: the index of the next one.
    pub(super) taken: usize,
}

/// What was stored of the run before this request, which sends it again.
#[derive(Default)]
pub(super) struct StoredBefore {
    /// The results in the record of the calls with which the run had ended, if a tool has ended it.
    pub(super) recorded_end: Option<Vec<ToolResult>>,
    /// How many tool calls of the run had been started, of those that readers see.
    pub(super) tool_calls: usize,
    /// Another run has written after what is stored of this one.
    pub(super) is_overtaken: bool,
    /// What the last run answered, where the request repeats everything but that.
    pub(super) last_answer: Option<Vec<Arc<Message>>>,
    /// The request was compared with what is stored, and has new messages alone.
    pub(super) is_observed: bool,
    /// The request makes a service call that was made before.
    pub(super) is_repeated: bool,
}

/// The service calls of a run.
#[derive(Default)]
pub(super) struct ServiceCalls {
    /// Of a run that is stored call by call.
    pub(super) last: Option<LastCall>,
    /// Whether a layer has seen the answer to a service call of this attempt at the run.
    pub(super) is_answered: bool,
    /// The last service call whose answer was refused, here or by the store: nothing of it is
    /// stored.
    pub(super) refused: Option<u32>,
    /// What a layer above put before the run's input: it stays first in every service call,
    /// although the tool loop sends it only once.
    pub(super) above: Messages,
    pub(super) untold_usage: UntoldUsage,
}

impl LoadedConversation {
    /// The id of the next message that the run adds.
    pub(super) fn next_id(&self, run: RunId) -> MessageId {
        MessageId { run, index: u32::try_from(self.taken).unwrap_or(u32::MAX) }
    }

    /// Whether the model has answered anything in this run.
    pub(super) fn has_answers(&self) -> bool {
        self.added.iter().any(|message| message.role == Role::Assistant)
    }

    /// The message of the loaded history with this sequence.
    pub(super) fn message_at(&self, sequence: u64) -> Option<&Arc<Message>> {
        let index = sequence.checked_sub(self.pruned.checked_add(1)?)?;
        self.history.get(usize::try_from(index).ok()?)
    }

    /// Takes note of who keeps the history from now on; returns what changes in the store.
    pub(super) fn adopt(&mut self, adopted: Adopted) -> Option<ServiceIdChange> {
        let Adopted { recording, service_id, change } = adopted;
        self.recording = recording;
        self.service_id.clone_from(&service_id);
        let is_known = self.stored_service_id == service_id;
        self.stored_service_id = service_id;
        change.filter(|_| !is_known)
    }
}

impl RunLog {
    /// A run of which nothing has happened yet, with the conversation as it was loaded.
    pub(super) fn new(
        run: RunId,
        mode: PersistenceMode,
        conversation: LoadedConversation,
        call_records: CallRecords,
    ) -> Self {
        Self {
            run,
            mode,
            refused: RefusedSoFar::stored(conversation.replay.refused()),
            conversation,
            stored_before: StoredBefore::default(),
            calls: ServiceCalls::default(),
            queued_by_tools: HashSet::new(),
            approved_calls: ApprovedCalls::default(),
            call_records,
            prior_attempts: PriorAttempts::default(),
            unsaved: 0,
            unsettled: Vec::new(),
            is_end_stored: false,
            is_persister_reported: false,
            is_persister_missed: false,
            input_digest: None,
            whole_run: WholeRun::default(),
            partial_text: None,
            journal: None,
        }
    }

    /// What became of the run's messages so far.
    pub(crate) fn saved(&self) -> Saved {
        Saved::new(self.conversation.added.len().saturating_sub(self.unsaved), self.unsaved)
    }

    /// Whether the store has the run as an open one, and this attempt works on it.
    pub(super) fn is_open(&self) -> bool {
        self.journal.as_deref().is_some_and(Journal::is_open)
    }

    /// The text of the last service call is part of an answer now.
    pub(super) fn forget_partial_text(&mut self) {
        self.partial_text = None;
        if let Some(journal) = self.journal.as_deref_mut() {
            journal.forget_partial_text();
        }
    }

    /// Gives messages their ids, counting on from a position, and the time at which they are added.
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

    /// Whether a message has the id of one that the run has taken in.
    pub(super) fn is_taken(&self, message: &Message) -> bool {
        let is_of_run = |id: &MessageId| id.run == self.run;
        let id = message.id.filter(is_of_run);
        id.is_some_and(|id| (id.index as usize) < self.conversation.taken)
    }

    /// Leaves out inputs that another attempt at the same service call has submitted.
    pub(super) fn leave_out_taken(&self, ordinal: Option<u32>, inputs: &mut Vec<Arc<Message>>) {
        if let Some(Attempt::Unanswered { .. }) = self.calls.attempt(ordinal) {
            inputs.retain(|message| !self.is_taken(message));
        }
    }

    /// The id of the message with this sequence, of the loaded history or of this attempt's answers.
    pub(super) fn id_at(&self, sequence: u64) -> Option<MessageId> {
        let of_attempt = self.call_records.id_at(sequence);
        of_attempt.or_else(|| self.conversation.message_at(sequence)?.id)
    }

    /// Whether something of the run is stored, or staged.
    pub(crate) fn has_stored(&self) -> bool {
        !self.conversation.added.is_empty()
    }

    /// How many messages the run has taken in.
    pub(crate) fn taken(&self) -> usize {
        self.conversation.taken
    }

    /// Takes note of the tools of the next service call, for their hooks.
    pub(crate) fn use_tools(&mut self, tools: &Tools) {
        self.call_records.hooks.use_tools(tools);
    }

    /// Keeps the tools of the calls in an answer, for their hooks, whatever set is used later.
    pub(crate) fn pin_calls(&mut self, answer: &[Arc<Message>]) {
        answer.iter().for_each(|message| self.call_records.hooks.pin_calls(message));
    }

    /// Keeps the tool of a call that an earlier run has asked for, or that there was none.
    pub(crate) fn pin_tool(&mut self, call: CallOfRun, tool: Option<Arc<dyn Tool>>) {
        self.call_records.hooks.pin(call, tool);
    }

    /// Takes note of a message that a tool has queued. It is kept where the results of tools are: the
    /// tool does not run again for it.
    pub(crate) fn note_queued_by_tool(&mut self, message: MessageId) {
        self.queued_by_tools.insert(message);
    }

    /// Whether a tool has queued a message.
    pub(crate) fn is_queued_by_tool(&self, message: MessageId) -> bool {
        self.queued_by_tools.contains(&message)
    }

    /// Takes note of what a tool loop knows of the results in a message, in their order.
    pub(crate) fn report_tools(&mut self, message: MessageId, reports: ToolReports) {
        self.call_records.report(message, reports);
    }

    /// Notes that a persister below the tool loop is at work.
    pub(crate) fn report_persister(&mut self) {
        self.is_persister_reported = true;
    }

    /// Whether a persister below the tool loop is at work.
    pub(crate) fn has_persister(&self) -> bool {
        self.is_persister_reported
    }
}
