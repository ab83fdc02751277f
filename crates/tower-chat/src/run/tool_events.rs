//! What the record says of tool calls between the messages that hold them and their results.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use tower_chat_core::{
    Message, Part, ToolCall, ToolInvocation, ToolResult, ToolStatus,
    store::{CallPlace, Claim, RecordedResult, ToolRecord},
};

use super::{
    State,
    journal::{CallOfRun, KnownCall},
    record::{ToolReport, put},
};
use crate::{
    replay::{Truncation, ids_of_calls_after},
    tool::Kept,
};

/// What came out of a call.
pub(crate) type Outcome = (CallOfRun, ToolResult, ToolReport);

/// The calls that wait for approval and were begun or refused before, as the record said when the run began.
#[derive(Debug, Default)]
pub(super) struct BegunBefore {
    starts: HashMap<CallPlace, SystemTime>,
    calls: HashMap<CallOfRun, KnownCall>,
    /// Calls that the record has closed with a result, although no message holds it.
    with_result: HashSet<CallOfRun>,
}

impl BegunBefore {
    /// What is known of a call, if it was begun.
    pub(super) fn call(&self, call: CallOfRun) -> Option<KnownCall> {
        self.calls.get(&call).cloned()
    }

    /// Whether the record has closed a call with a result.
    pub(super) fn has_result(&self, call: CallOfRun) -> bool {
        self.with_result.contains(&call)
    }
}

impl FromIterator<ToolInvocation> for BegunBefore {
    fn from_iter<I: IntoIterator<Item = ToolInvocation>>(waiting: I) -> Self {
        let mut begun = Self::default();
        for call in waiting {
            if !call.status.is_open() && call.result.is_some() {
                begun.with_result.insert((call.message, call.sequence_index as usize));
                continue;
            }
            if call.started_at.is_none() && call.result.is_none() {
                continue;
            }
            let place = CallPlace { sequence: call.sequence, index: call.sequence_index };
            begun.starts.extend(call.started_at.map(|started_at| (place, started_at)));
            let of_run = (call.message, call.sequence_index as usize);
            begun.calls.insert(of_run, KnownCall::of_waiting(call));
        }
        begun
    }
}

/// A call that the conversation holds, as far as the record needs to know it.
struct HeldCall {
    place: CallPlace,
    call: ToolCall,
    call_id: String,
    round_index: u32,
    waits_for_approval: bool,
}

impl HeldCall {
    fn row(&self) -> ToolRecord {
        let mut row =
            ToolRecord::pending(self.place, self.round_index, &*self.call_id, &self.call.name);
        if self.waits_for_approval {
            row.status = ToolStatus::PendingApproval;
        }
        row
    }
}

impl State {
    /// Rows that say calls are about to run, and the claims to those that waited for approval. A
    /// call of which nothing is stored has none.
    pub(super) fn start_rows(
        &self,
        calls: &[CallOfRun],
        messages: &[Arc<Message>],
        now: SystemTime,
        records: &mut Vec<ToolRecord>,
    ) -> Vec<Claim> {
        let mut claims = Vec::new();
        for held in calls.iter().filter_map(|call| self.held(*call, messages)) {
            if held.waits_for_approval {
                let started_at = self.begun_before.starts.get(&held.place).copied();
                claims.push(Claim { call: held.place, started_at });
            }
            match records.iter_mut().find(|row| row.call == held.place) {
                Some(row) => row.started_at = Some(now),
                None => {
                    let mut row = held.row();
                    row.started_at = Some(now);
                    records.push(row);
                }
            }
        }
        claims
    }

    /// Rows that hold what came out of calls, before any message does. The tools' hooks and the
    /// truncation are applied. A call that waited for approval goes on waiting for its result to
    /// be part of the history.
    pub(super) fn outcome_rows(
        &self,
        outcomes: &[Outcome],
        truncation: Truncation,
        records: &mut Vec<ToolRecord>,
    ) {
        for (call, result, report) in outcomes {
            let Some(held) = self.held(*call, &[]) else { continue };
            let kept = self.kept_outcome(*call, &held.call, result, Some(report));
            let (changed, changed_error) = match kept {
                Kept::Whole => (None, None),
                Kept::Redacted(redaction) => (redaction.result, redaction.error),
                Kept::Nothing(_) => continue,
            };
            let mut result = changed.unwrap_or_else(|| Box::new(result.clone()));
            truncation.apply(&mut result);
            let mut row = held.row();
            if !held.waits_for_approval {
                row.status = report.status;
            }
            row.result = RecordedResult::Apart(result);
            row.error = changed_error.unwrap_or_else(|| report.error.clone());
            row.started_at = report.started_at;
            row.finished_at = report.finished_at;
            put(records, row);
        }
    }

    /// A call as the conversation holds it: in messages about to be stored, in one that this run
    /// has stored, or in the loaded history.
    fn held(&self, call: CallOfRun, messages: &[Arc<Message>]) -> Option<HeldCall> {
        let (id, index) = call;
        let stored = self.stored_place(call)?;
        let is_it = |message: &Arc<Message>| message.id == Some(id);
        let of_run = || messages.iter().rev().chain(self.added.iter().rev());
        let mut before: Box<dyn Iterator<Item = &Arc<Message>> + '_> = match of_run().any(is_it) {
            true => Box::new(of_run()),
            false => Box::new(self.history.iter().rev()),
        };
        let message = before.find(|message| is_it(message))?;
        let (found, waits_for_approval) = message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolCall(call) if !call.provider_executed => Some((call, false)),
                Part::ApprovalRequest(request) => Some((&request.call, true)),
                _ => None,
            })
            .nth(index)?;
        let ids = ids_of_calls_after(before.map(|message| &**message), message);
        let call_id = ids.into_iter().nth(index)?.into_owned();
        Some(HeldCall {
            place: stored.call,
            call: found.clone(),
            call_id,
            round_index: stored.round_index,
            waits_for_approval,
        })
    }
}
