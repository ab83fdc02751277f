//! The data about the tool calls of a run from which later writes build rows of the record of tool
//! calls.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tower_chat_core::{
    Message, MessageId, Part, ToolCall, pairing::AnswerIds, store::SequencePosition,
};

use super::{hooks::Hooks, stored_messages::RoundCounter};
use crate::tool::{CallOfRun, NotKept, Retained, ToolReports, retained};

/// The data about the tool calls of a run for the rows of later writes.
#[derive(Default)]
pub(crate) struct CallRecords {
    pub(crate) hooks: Hooks,
    pub(super) reports: HashMap<MessageId, ToolReports>,
    /// The messages of this run that contain tool calls and were stored by this attempt.
    pub(super) asking: BTreeMap<MessageId, Asking>,
    /// The calls of the answer that was looked up last. Outcomes usually arrive one at a time, and
    /// the row of each needs the same answer.
    pub(super) calls_of_answer: RefCell<HashMap<CallOfRun, CallOfMessage>>,
    /// The number of rounds of the run that earlier attempts have stored.
    pub(super) rounds_before: usize,
    /// The decisions of hooks about calls that wait for approval, which are made before the
    /// approval is requested.
    pub(super) pending: HashMap<CallOfRun, Retained>,
}

pub(super) struct Asking {
    pub(super) sequence: u64,
    pub(super) round_index: u32,
    /// For each call in the model's message, its index among the stored calls of the message.
    /// `None` if it is not stored.
    pub(super) stored: Vec<Option<u32>>,
}

/// A call, the id that its result uses, and whether it waits for approval.
#[derive(Clone)]
pub(super) struct CallOfMessage {
    pub(super) call: ToolCall,
    pub(super) call_id: String,
    pub(super) waits_for_approval: bool,
}

pub(super) struct StoredPosition {
    pub(super) call: SequencePosition,
    pub(super) round_index: u32,
}

/// The call that waits for approval and that a hook does not allow to be stored.
pub(super) struct PendingCallNotKept {
    pub(super) tool: String,
    pub(super) call_id: String,
    pub(super) reason: NotKept,
}

impl CallRecords {
    /// Calls the hooks of the calls in these messages that wait for approval, and stores their
    /// decisions for the write.
    ///
    /// Returns the first call that a hook does not allow to be stored, because it could not run
    /// after its approval. No decision is then stored.
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

    /// Returns the parts of a call, without a result, that the hook of its tool allows to be
    /// stored.
    pub(super) fn retained_call(&self, of_run: CallOfRun, call: &ToolCall) -> Retained {
        let tool = self.hooks.tool(of_run, call).filter(|_| !self.hooks.had_no_tool(of_run));
        tool.map_or(Retained::Whole, |tool| retained(tool, call, None, None))
    }

    pub(super) fn of_stored(added: &[Arc<Message>], hooks: Hooks) -> Self {
        let mut rounds = RoundCounter::default();
        added.iter().for_each(|message| rounds.push(message));
        Self { hooks, rounds_before: rounds.count, ..Self::default() }
    }

    /// Returns whether hooks have removed calls of a message that this attempt has stored.
    pub(super) fn lacks_calls_of(&self, message: MessageId) -> bool {
        self.asking.get(&message).is_some_and(|asking| asking.stored.iter().any(Option::is_none))
    }

    /// Returns the id of the message with this sequence number, if this attempt has stored its
    /// calls.
    pub(super) fn id_at(&self, sequence: u64) -> Option<MessageId> {
        let found = self.asking.iter().find(|(_, asking)| asking.sequence == sequence);
        found.map(|(message, _)| *message)
    }

    /// Returns the index of the round to which the next message with calls belongs.
    pub(super) fn round_index(&self, begins_round: bool) -> u32 {
        let rounds_before = u32::try_from(self.rounds_before).unwrap_or(u32::MAX);
        let next = match self.asking.values().next_back() {
            Some(last) => last.round_index.saturating_add(1),
            None => rounds_before,
        };
        if begins_round { next } else { next.saturating_sub(1) }
    }

    pub(crate) fn report(&mut self, message: MessageId, reports: ToolReports) {
        self.reports.insert(message, reports);
    }
}

/// Returns the call that needs a result in a part, and whether it waits for approval.
pub(super) fn asked_call(part: &Part) -> Option<(&ToolCall, bool)> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some((call, false)),
        Part::ApprovalRequest(request) => Some((&request.call, true)),
        _ => None,
    }
}
