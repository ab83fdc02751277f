//! The run log: the state of a run's conversation, messages and calls.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    Answer, Message, MessageId, PersistenceMode, RunId, Saved, ToolResult, Usage,
    store::author::Write,
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
    refused_content::RefusedSoFar,
};
use crate::next_step::LoopPolicy;

/// The state of a run's messages and calls. Contains no store, no clock and no futures.
/// [`apply`](super::events::apply) uses the log to determine the writes.
pub(crate) struct RunLog {
    /// The mode in which the run is stored. Each mode is a column of the table in
    /// `docs/contract.md`.
    pub(super) mode: PersistenceMode,
    /// The stored answer of a run without a layer above the tool loop, if the store already
    /// contained the complete run.
    pub(crate) answer: Option<Answer>,
    pub(crate) conversation: LoadedConversation,
    pub(super) stored_before: StoredBefore,
    pub(crate) calls: ServiceCalls,
    /// The messages that tools of this attempt have queued. If a service call fails, they are
    /// stored like results of tools, because the tools do not run again.
    pub(crate) queued_by_tools: HashSet<MessageId>,
    pub(crate) approved_calls: ApprovedCalls,
    pub(crate) call_records: CallRecords,
    /// The rules for the next step after a service call. `None` for a tool loop of another crate.
    pub(crate) loop_policy: Option<LoopPolicy>,
    /// The recorded state, when the run began, of the calls that wait for approval.
    pub(crate) prior_attempts: PriorAttempts,
    /// The number of messages of the conversation in the store's outbox.
    pub(super) unsaved: usize,
    /// Writes that must be submitted again with the next one, because the run has continued
    /// although the store may have refused them.
    pub(super) unsettled: Vec<Write>,
    /// The marks for content that services have refused.
    pub(super) refused: RefusedSoFar,
    /// Whether a submitted write marks the run as complete.
    pub(super) is_end_stored: bool,
    pub(crate) persister: Persister,
    /// The history that a layer has put before the input in the request. Layers below that add the
    /// history to each service call remove these messages.
    pub(crate) history_in_request: HistoryInRequest,
    /// The digest of the user's messages in the input, which is stored with the run's first
    /// message.
    pub(super) input_digest: Option<String>,
    /// In per-service-call mode: the received text of the last service call, if it failed. The text
    /// is stored when the run ends, because a retry may still return an answer.
    pub(super) partial_text: Option<Arc<str>>,
    /// The state of a run in journaled mode.
    pub(super) journal: Option<Box<Journal>>,
    /// The fenced attempt that the next write begins, except in journaled mode.
    pub(super) fenced: Option<FencedAttempt>,
    /// The usage of the summaries of this attempt, until the answer contains it.
    pub(super) usage_of_summaries: Usage,
}

/// The layer that stores the service calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persister {
    /// Not known yet. A layer that was found below the tool loop may still not receive the calls.
    Unknown,
    /// A service call was made that no persister has received.
    Missing,
    /// A layer below the tool loop that has received a service call. For a run that is stored at its
    /// end, a layer that was found below the loop.
    Layer,
    /// The tool loop itself, because the run is stored at its end and no persister was found below
    /// the loop.
    ToolLoop,
}

impl Persister {
    pub(crate) fn is_found(self) -> bool {
        matches!(self, Self::Layer | Self::ToolLoop)
    }

    /// Records that a persister below the tool loop has received a service call.
    pub(crate) fn note_layer(&mut self) {
        if *self != Self::ToolLoop {
            *self = Self::Layer;
        }
    }
}

/// The stored part of a run that the request sends again.
#[derive(Default)]
pub(super) struct StoredBefore {
    /// The recorded results of the last answer's calls, if a tool has ended the run, or if the
    /// calls were returned to the caller.
    pub(super) recorded_end: Option<Vec<ToolResult>>,
    /// The number of the run's tool calls that have started, except calls in staged messages.
    pub(super) tool_calls: usize,
    /// Whether another run has written messages after the stored messages of this run.
    pub(super) is_overtaken: bool,
    /// The answer of the previous run, if the request repeats all stored messages except this answer.
    pub(super) last_answer: Option<Vec<Arc<Message>>>,
    /// Whether the request was compared with the stored messages, and contains only new ones.
    pub(super) is_observed: bool,
    /// Whether the request repeats an earlier service call.
    pub(super) is_repeated: bool,
}

impl RunLog {
    pub(super) fn without_store(run: RunId) -> Self {
        let conversation = LoadedConversation::empty(run);
        let mode = PersistenceMode::PerServiceCall;
        Self::new(mode, conversation, CallRecords::default())
    }

    /// Creates the log of a run without events.
    pub(super) fn new(
        mode: PersistenceMode,
        conversation: LoadedConversation,
        call_records: CallRecords,
    ) -> Self {
        Self {
            mode,
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
            persister: Persister::Unknown,
            history_in_request: HistoryInRequest::default(),
            input_digest: None,
            partial_text: None,
            journal: None,
            fenced: None,
            usage_of_summaries: Usage::default(),
        }
    }

    /// Returns the number of the run's stored messages, and the number of messages in the outbox.
    pub(crate) fn saved(&self) -> Saved {
        Saved::new(self.conversation.added.submitted().saturating_sub(self.unsaved), self.unsaved)
    }

    /// Returns whether the run is open in the store and this attempt works on it.
    pub(super) fn is_open(&self) -> bool {
        self.journal.as_deref().is_some_and(Journal::is_open)
    }

    /// Removes the partial text of a service call, which a message of an answer contains.
    pub(super) fn forget_partial_text(&mut self) {
        self.partial_text = None;
        if let Some(journal) = self.journal.as_deref_mut() {
            journal.partial_text.forget();
        }
    }

    /// Removes from `inputs` the messages that a failed earlier attempt at the same service call
    /// has submitted.
    pub(super) fn leave_out_submitted(&self, ordinal: Option<u32>, inputs: &mut Vec<Arc<Message>>) {
        if let Some(Attempt::Unanswered { .. }) = self.calls.attempt(ordinal) {
            inputs.retain(|message| !self.conversation.added.has_assigned_id(message));
        }
    }

    /// Returns the id of the message with this sequence number, if the message was loaded, or if
    /// this attempt has stored its calls.
    pub(super) fn id_at(&self, sequence: u64) -> Option<MessageId> {
        let of_attempt = self.call_records.id_at(sequence);
        of_attempt.or_else(|| self.conversation.history.message(sequence)?.id)
    }

    /// Returns whether a message of the run is stored or staged.
    pub(crate) fn has_stored(&self) -> bool {
        !self.conversation.added.is_empty()
    }

    pub(crate) fn assigned_ids(&self) -> usize {
        self.conversation.added.assigned_ids()
    }

    /// Returns whether persistence layers have received every service call of the run.
    pub(crate) fn has_seen_rounds(&self) -> bool {
        self.calls.is_answered && !self.conversation.added.is_discontinuous
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
