//! The data about the tool calls of a run from which later writes build rows of the record of tool
//! calls.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    Message, MessageId, Part, ToolCall, pairing::AnswerIds, store::SequencePosition,
};

use super::{
    held_calls::HeldCalls,
    hooks::Hooks,
    stored_messages::{Rounds, StoredMessages},
};
use crate::tool::{CallOfRun, NotKept, Retained, ToolReports, retained};

/// The data about the tool calls of a run from which later writes build rows of the record of tool
/// calls.
#[derive(Debug, Default)]
pub(super) struct CallRecords {
    pub(super) hooks: Hooks,
    /// The reports about results, by the message that contains the results.
    reports: HashMap<MessageId, ToolReports>,
    /// The messages of this run that contain tool calls and were stored by this attempt.
    pub(super) asking: Vec<Asking>,
    /// The index in `asking` of each message, by the id of the message.
    pub(super) asked: HashMap<MessageId, usize>,
    pub(super) stored: StoredMessages,
    pub(super) held: HeldCalls,
    /// The number of rounds of the run that earlier attempts have stored.
    pub(super) rounds_before: usize,
    /// The decisions of hooks about calls that wait for approval. The hooks are called before the
    /// approval is requested, and the write of the calls uses the decisions.
    pub(super) pending: HashMap<CallOfRun, Retained>,
}

#[derive(Debug)]
pub(super) struct Asking {
    /// The sequence number of the message.
    pub(super) sequence: u64,
    /// The index, within the run and from 0, of the round of the message.
    pub(super) round_index: u32,
    /// For each call in the model's message, in order, the index of the call among the stored calls
    /// of the message. `None` if the call is not stored.
    pub(super) stored: Vec<Option<u32>>,
    /// Whether hooks have removed some of the calls.
    pub(super) lacks_calls: bool,
}

/// The position of a stored call, and the index of its round.
pub(super) struct StoredPosition {
    pub(super) call: SequencePosition,
    /// The index of the round within its run, from 0.
    pub(super) round_index: u32,
}

/// The reason why an answer is refused: a call waits for approval, but a hook does not allow the
/// call to be stored.
pub(super) struct PendingCallNotKept {
    pub(super) tool: String,
    pub(super) call_id: String,
    pub(super) reason: NotKept,
}

impl CallRecords {
    /// Calls the hooks of those calls in these messages that wait for approval. Stores the
    /// decisions of the hooks in `pending`, for the write of the messages.
    ///
    /// # Errors
    ///
    /// Returns the first call that a hook does not allow to be stored. Such a call could not run
    /// after its approval. In this case, no decision is added to `pending`.
    pub(super) fn keep_pending_calls(
        &mut self,
        messages: &[Arc<Message>],
    ) -> Result<(), PendingCallNotKept> {
        let mut decided = Vec::new();
        let mut ids = AnswerIds::default();
        for message in messages {
            let ids = ids.next(message);
            let Some(id) = message.id else { continue };
            self.hooks.pin_calls(message);
            let calls = message.parts.iter().filter_map(asked_call);
            for (index, ((call, is_waiting), call_id)) in calls.zip(ids).enumerate() {
                if !is_waiting || self.pending.contains_key(&(id, index)) {
                    continue;
                }
                match self.retained_call((id, index), call) {
                    Retained::Nothing(reason) => {
                        let (tool, call_id) = (call.name.clone(), call_id.into_owned());
                        return Err(PendingCallNotKept { tool, call_id, reason });
                    }
                    retained => decided.push(((id, index), retained)),
                }
            }
        }
        self.pending.extend(decided);
        Ok(())
    }

    /// Returns the parts of a call that the hook of its tool allows to be stored. The hook receives
    /// no result. Returns `Retained::Whole` if the call has no tool.
    pub(super) fn retained_call(&self, of_run: CallOfRun, call: &ToolCall) -> Retained {
        let tool = self.hooks.tool(of_run, call).filter(|_| !self.hooks.had_no_tool(of_run));
        tool.map_or(Retained::Whole, |tool| retained(tool, call, None, None))
    }

    /// Creates the records of a run. `added` are the messages of the run that are already stored.
    pub(super) fn after(added: &[Arc<Message>], hooks: Hooks) -> Self {
        Self { hooks, rounds_before: rounds_in(added), ..Self::default() }
    }

    /// Returns whether this attempt has stored the calls of a message.
    pub(super) fn has_stored_calls_of(&self, message: MessageId) -> bool {
        self.asked.contains_key(&message)
    }

    /// Returns whether hooks have removed calls from a message that this attempt has stored.
    pub(super) fn lacks_calls_of(&self, message: MessageId) -> bool {
        self.asking(message).is_some_and(|asking| asking.lacks_calls)
    }

    /// Returns the id of the message with this sequence number, if the message contains calls and
    /// was stored by this attempt.
    pub(super) fn id_at(&self, sequence: u64) -> Option<MessageId> {
        let is_it = |at: &usize| self.asking.get(*at).is_some_and(|it| it.sequence == sequence);
        self.asked.iter().find(|(_, at)| is_it(at)).map(|(message, _)| *message)
    }

    /// Returns the entry for a message with calls that this attempt has stored.
    pub(super) fn asking(&self, message: MessageId) -> Option<&Asking> {
        self.asking.get(*self.asked.get(&message)?)
    }

    /// Returns the index, within the run and from 0, of the round to which the next message with calls
    /// belongs.
    pub(super) fn round_index(&self, begins_round: bool) -> u32 {
        let rounds_before = u32::try_from(self.rounds_before).unwrap_or(u32::MAX);
        let next = match self.asking.last() {
            Some(last) => last.round_index.saturating_add(1),
            None => rounds_before,
        };
        if begins_round { next } else { next.saturating_sub(1) }
    }

    /// Stores the tool loop's reports about the results in a message.
    pub(super) fn report(&mut self, message: MessageId, reports: ToolReports) {
        self.reports.insert(message, reports);
    }

    /// Returns the tool loop's reports about the results in a message that is not stored yet.
    pub(super) fn reports(&self, message: MessageId) -> Option<&ToolReports> {
        self.reports.get(&message)
    }

    pub(super) fn take_reports(&mut self, message: MessageId) -> Option<ToolReports> {
        self.reports.remove(&message)
    }
}

/// Returns the number of rounds in the messages of one run. The messages must be in order.
fn rounds_in<'m>(messages: impl IntoIterator<Item = &'m Arc<Message>>) -> usize {
    let mut rounds = Rounds::default();
    messages.into_iter().for_each(|message| rounds.push(message));
    rounds.count
}

/// Returns the call in a part, and whether the call waits for approval. Returns `None` if the part
/// contains no call, or a call that the provider has executed.
pub(super) fn asked_call(part: &Part) -> Option<(&ToolCall, bool)> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some((call, false)),
        Part::ApprovalRequest(request) => Some((&request.call, true)),
        _ => None,
    }
}
