//! What the record says of tool calls between the messages that hold them and their results.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::SystemTime,
};

use tower_chat_core::{
    Message, ToolInvocation, ToolStatus,
    store::{CallPlace, Claim, RecordedResult, ToolRecord},
};

use super::{
    State, held_calls::HeldCall, journal::CallOutcome, record::StoredPosition, records::Records,
};
use crate::{
    replay::Truncation,
    tool::{CallOfRun, Retained, ToolOutcome},
};

/// The calls that wait for approval and were begun or refused before, as the record said when the run began.
#[derive(Debug, Default)]
pub(super) struct PriorAttempts {
    starts: HashMap<CallPlace, SystemTime>,
    calls: HashMap<CallOfRun, CallOutcome>,
    /// Calls that the record has closed with a result, although no message holds it.
    with_result: HashSet<CallOfRun>,
}

impl PriorAttempts {
    /// What is known of a call, if it was begun.
    pub(super) fn call(&self, call: CallOfRun) -> Option<CallOutcome> {
        self.calls.get(&call).cloned()
    }

    /// Whether the record has closed a call with a result.
    pub(super) fn has_result(&self, call: CallOfRun) -> bool {
        self.with_result.contains(&call)
    }
}

impl FromIterator<ToolInvocation> for PriorAttempts {
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
            let position = CallPlace { sequence: call.sequence, index: call.sequence_index };
            begun.starts.extend(call.started_at.map(|started_at| (position, started_at)));
            let of_run = (call.message, call.sequence_index as usize);
            begun.calls.insert(of_run, CallOutcome::of_waiting(call));
        }
        begun
    }
}

/// A stored call.
struct StoredCall {
    stored: StoredPosition,
    held: HeldCall,
}

impl StoredCall {
    fn row(&self) -> ToolRecord {
        let (call, name) = (self.stored.call, &self.held.call.name);
        let mut row = ToolRecord::pending(call, self.stored.round_index, &*self.held.call_id, name);
        if self.held.waits_for_approval {
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
        records: &mut Records,
    ) -> Vec<Claim> {
        let mut claims = Vec::new();
        for stored in calls.iter().filter_map(|call| self.stored_call(*call, messages)) {
            let call = stored.stored.call;
            if stored.held.waits_for_approval {
                let started_at = self.prior_attempts.starts.get(&call).copied();
                claims.push(Claim { call, started_at });
            }
            match records.get_mut(call) {
                Some(row) => row.started_at = Some(now),
                None => {
                    let mut row = stored.row();
                    row.started_at = Some(now);
                    records.put(row);
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
        outcomes: &[ToolOutcome],
        truncation: Truncation,
        records: &mut Records,
    ) {
        for (call, result, report) in outcomes {
            let Some(stored) = self.stored_call(*call, &[]) else { continue };
            let retained = self.retained_outcome(*call, &stored.held.call, result, Some(report));
            let (changed, changed_error) = match retained {
                Retained::Whole => (None, None),
                Retained::Redacted(redaction) => (redaction.result, redaction.error),
                Retained::Nothing(_) => continue,
            };
            let mut result = changed.unwrap_or_else(|| Box::new(result.clone()));
            truncation.apply(&mut result);
            let mut row = stored.row();
            if !stored.held.waits_for_approval {
                row.status = report.status;
            }
            row.result = RecordedResult::Apart(result);
            row.error = changed_error.unwrap_or_else(|| report.error.clone());
            row.started_at = report.started_at;
            row.finished_at = report.finished_at;
            records.put(row);
        }
    }

    /// A call of messages about to be stored, or one that is stored.
    fn stored_call(&self, call: CallOfRun, messages: &[Arc<Message>]) -> Option<StoredCall> {
        let stored = self.stored_position(call)?;
        let held = self.held_call(call, messages)?;
        Some(StoredCall { stored, held })
    }
}
