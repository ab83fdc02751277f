//! Approved calls of earlier runs that this run has claimed and run.

use std::{collections::HashMap, time::SystemTime};

use tower_chat_core::{
    ToolStatus,
    store::{
        StoreError,
        author::{Claim, RecordedResult, Slot, ToolRecord, Write},
    },
};

use super::{Run, State, Submission, records::Records};
use crate::{
    StoreFailure,
    tool::{CallOfRun, ToolOutcome},
};

/// What this attempt has done with calls that earlier runs have asked for and that were approved.
#[derive(Default)]
pub(super) struct ApprovedCalls {
    /// When the calls were claimed whose tools have not begun.
    claimed: HashMap<CallOfRun, SystemTime>,
    /// What came out of those that have run.
    outcomes: Vec<ToolOutcome>,
}

impl ApprovedCalls {
    /// A claim is about to be submitted.
    pub(super) fn note_claim(&mut self, call: CallOfRun, now: SystemTime) {
        self.claimed.insert(call, now);
    }

    /// The outcome of a call is about to be submitted.
    pub(super) fn note_outcome(&mut self, outcome: &ToolOutcome) {
        self.outcomes.push(outcome.clone());
    }
}

impl Run {
    /// The tool of a call begins: from now on its claim says that it may have taken effect.
    pub(crate) fn note_tool_begun(&self, call: CallOfRun) {
        self.state().approved_calls.claimed.remove(&call);
    }

    /// Keeps the claims of calls whose tools have not begun: results say so.
    pub(crate) fn keep_claims(&self) {
        self.state().approved_calls.claimed.clear();
    }

    /// Withdraws the claims of calls whose tools have not begun, so that they can be approved again.
    /// A submission, since the caller may have gone away.
    pub(crate) fn withdraw_claims(&self) {
        let mut state = self.state();
        let claimed = std::mem::take(&mut state.approved_calls.claimed);
        let mut records = Records::default();
        let mut claims = Vec::new();
        for (call, started_at) in claimed {
            let Some(mut row) = state.call_row(call) else { continue };
            // As it was before; else another attempt has claimed it since.
            claims.push(Claim { call: row.call, started_at: Some(started_at) });
            row.started_at = state.prior_attempts.starts.get(&row.call).copied();
            records.put(row);
        }
        if claims.is_empty() {
            return;
        }
        let submission = self.submit_rows(&mut state, records.into_rows(), claims);
        drop(state);
        drop(submission);
    }

    /// Submits rows of the record beside the run, which they neither open nor close.
    pub(super) fn submit_rows(
        &self,
        state: &mut State,
        rows: Vec<ToolRecord>,
        claims: Vec<Claim>,
    ) -> Submission {
        let conversation = &state.conversation;
        let id = conversation.next_id(self.id());
        let mut write = Write::new(self.key().clone(), id, conversation.revision, [])
            .with_activity(self.activity_now());
        if !claims.is_empty() {
            write = write.with_claims(claims);
        }
        let write = match state.of_mode.journal_mut().filter(|journal| journal.is_in_store()) {
            Some(journal) => journal.staged(write, rows, None, None),
            None => write.with_tools(rows),
        };
        let slot = Ok(Slot::unbounded().without_blocking());
        let writes = state.with_unsettled(write);
        Submission::submit(self.store(), StoreFailure::FailCall, slot, writes)
    }

    /// Another run has written first: records what came out of the approved calls that this run has
    /// run, whatever the other run says of them.
    pub(super) async fn record_outcomes_again(&self, source: &StoreError) {
        if !matches!(source, StoreError::Conflict(_)) {
            return;
        }
        let rows = {
            let state = self.state();
            let mut records = Records::default();
            let outcomes = &state.approved_calls.outcomes;
            state.outcome_rows(outcomes, self.policy().truncation, &mut records);
            let mut rows = records.into_rows();
            for row in &mut rows {
                if let RecordedResult::Apart(result) = &row.result
                    && row.status == ToolStatus::PendingApproval
                {
                    row.status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
                }
            }
            rows
        };
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.record_at_end(rows).await {
            tracing::error!(
                conversation = %self.key(),
                error = &error as &dyn std::error::Error,
                "what came out of approved tool calls could not be recorded"
            );
        }
    }

    /// Stores rows behind whatever other runs have written since.
    async fn record_at_end(&self, rows: Vec<ToolRecord>) -> Result<(), StoreError> {
        const MOST: usize = 8;
        let store = self.store();
        let own = self.state().conversation.revision.incarnation;
        let mut outcome = Ok(());
        for _ in 0..MOST {
            let revision = (**store).head(self.key()).await?.revision;
            if revision.incarnation != own {
                return Ok(());
            }
            let id = self.state().conversation.next_id(self.id());
            let write = Write::new(self.key().clone(), id, revision, [])
                .with_activity(self.activity_now())
                .with_tools(rows.clone());
            let appended = (**store).append(Slot::unbounded(), vec![write]).await;
            outcome = appended.map(drop).map_err(|error| error.source);
            match &outcome {
                Err(StoreError::Conflict(_)) => {}
                Ok(()) | Err(_) => break,
            }
        }
        outcome
    }
}
