//! Stores the claims and the outcomes of calls that an earlier run made, that were approved, and
//! whose tools this run executes. A [`Claim`] is the durable mark that an attempt starts an
//! approved call.

use std::{
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ToolStatus,
    store::{
        Revision, StoreError,
        author::{Claim, RecordedResult, Slot, ToolRecord, Write},
    },
};

use super::{Run, Shared, Submission, log::RunLog, records::Records, usage::activity_now};
use crate::{
    StoreFailure,
    tool::{CallOfRun, ToolOutcome},
};

/// Submits the outcomes of approved calls that are not stored yet. Otherwise, another attempt would
/// treat them as unknown. A journaled run has staged its outcomes.
pub(crate) fn submit_unstored_outcomes(run: &Run) {
    let mut log = run.log();
    let unstored = std::mem::take(&mut log.approved_calls.unstored);
    if unstored.is_empty() || log.journal.as_deref().is_some() {
        return;
    }
    let outcomes = log.approved_calls.outcomes.iter();
    let outcomes: Vec<_> = outcomes.filter(|it| unstored.contains(&it.0)).cloned().collect();
    let rows = rows_of(run, &log, &outcomes);
    let submission = submit_rows(run, &mut log, rows, Vec::new());
    drop(log);
    drop(submission);
}

fn rows_of(run: &Run, log: &RunLog, outcomes: &[ToolOutcome]) -> Vec<ToolRecord> {
    let (mut records, truncation) = (Records::default(), run.policy().truncation);
    log.call_records.outcome_rows(&log.conversation, outcomes, truncation, &mut records);
    records.into_rows()
}

/// Withdraws the claims of calls whose tools were not started, so that these calls can be approved
/// again. If the tool of a claimed call was dropped while it was running, ends the lease of the
/// claim. Does not wait for the outcome of the write, because the caller may have disconnected.
pub(crate) fn withdraw_claims(run: &Run) {
    let mut log = run.log();
    let claimed = std::mem::take(&mut log.approved_calls.claimed);
    let held = std::mem::take(&mut log.approved_calls.held);
    let mut records = Records::default();
    let mut claims = Vec::new();
    for (call, started_at) in &claimed {
        let Some(mut row) = log.call_records.call_row(&log.conversation, *call) else { continue };
        // The write resets the row to its state before the claim. If another attempt has claimed
        // the call since, the store refuses the write.
        claims.push(Claim { call: row.call, started_at: Some(*started_at) });
        row.started_at = log.prior_attempts.starts.get(&row.call).copied();
        records.insert(row);
    }
    if !claim_lease(run, &log).is_zero() {
        let begun = held.into_iter().filter(|(call, _)| !claimed.contains_key(call));
        let (rows, of_begun) = held_rows(&log, begun, None);
        claims.extend(of_begun);
        rows.into_iter().for_each(|row| records.insert(row));
    }
    if claims.is_empty() {
        return;
    }
    let submission = submit_rows(run, &mut log, records.into_rows(), claims);
    drop(log);
    drop(submission);
}

/// Submits a write that contains only rows of the record.
pub(super) fn submit_rows(
    run: &Run,
    log: &mut RunLog,
    rows: Vec<ToolRecord>,
    claims: Vec<Claim>,
) -> Submission {
    let write = write_of_claims(run, log, log.conversation.revision, claims);
    let write = match log.journal.as_deref_mut().filter(|journal| journal.is_in_store()) {
        Some(journal) => journal.staged(write, rows, None, None),
        None => write.with_tools(rows),
    };
    let slot = Ok(Slot::unbounded().without_blocking());
    let writes = log.with_unsettled(write);
    Submission::submit(run.store(), StoreFailure::FailCall, slot, writes)
}

fn write_of_claims(run: &Run, log: &RunLog, revision: Revision, claims: Vec<Claim>) -> Write {
    let id = log.conversation.added.next_id();
    Write::new(run.key().clone(), id, revision, [])
        .with_activity(activity_now(run))
        .with_claims(claims)
}

/// Returns how long a claim lasts after its last renewal. Zero if claims do not expire: in a
/// journaled run, whose lease covers the whole conversation, and if no other process can access the
/// store.
pub(super) fn claim_lease(run: &Run, log: &RunLog) -> Duration {
    match log.journal.as_deref().is_some()
        || run.store().is_none_or(|it| it.handle().is_exclusive())
    {
        true => Duration::ZERO,
        false => run.policy().journal.lease,
    }
}

/// Starts the task that renews the claims, unless it is already running. The task ends with the
/// last clone of the run, or when no claim needs a renewal.
pub(super) fn keep_claims_held(run: &Run, log: &mut RunLog) {
    let lease = claim_lease(run, log);
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    if lease.is_zero() || std::mem::replace(&mut log.approved_calls.is_renewed, true) {
        return;
    }
    let run: Weak<Shared> = Arc::downgrade(&run.shared);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(lease / 3).await;
            let Some(run) = run.upgrade().map(Run::from) else { return };
            if !renew_claims(&run, lease).await {
                return;
            }
        }
    });
}

/// Renews the claims, and tries again if another run has written first. Returns whether the task
/// must renew them again later.
async fn renew_claims(run: &Run, lease: Duration) -> bool {
    const MAX_TRIES: usize = 8;
    let Some(store) = run.store() else { return false };
    let mut revision = None;
    for _ in 0..MAX_TRIES {
        // The log remains locked until the write is submitted, so that no outcome of a call
        // precedes this renewal.
        let ticket = {
            let mut log = run.log();
            let held = log.approved_calls.held.clone();
            if held.is_empty() {
                log.approved_calls.is_renewed = false;
                return false;
            }
            let until = Some(run.clock().now() + lease);
            let (rows, claims) = held_rows(&log, held, until);
            let revision = revision.unwrap_or(log.conversation.revision);
            let write = write_of_claims(run, &log, revision, claims).with_tools(rows);
            (**store).append(Slot::unbounded().without_blocking(), vec![write])
        };
        let Err(failed) = ticket.await else { return true };
        match failed.source {
            StoreError::Conflict(_) => {
                let Ok(head) = (**store).head(run.key()).await else { return true };
                revision = Some(head.revision);
                if head.revision.incarnation != run.log().conversation.revision.incarnation {
                    break;
                }
            }
            // Another attempt has claimed a call.
            StoreError::Claimed { .. } => break,
            source => {
                tracing::warn!(
                    conversation = %run.key(),
                    error = &source as &dyn std::error::Error,
                    "the claims of approved tool calls could not be renewed"
                );
                return true;
            }
        }
    }
    let mut log = run.log();
    log.approved_calls.held.clear();
    log.approved_calls.is_renewed = false;
    false
}

/// Stores the outcomes of this run's approved calls after a write failed with `source` because
/// another run has written first.
pub(super) async fn record_outcomes_again(run: &Run, source: &StoreError) {
    if !matches!(source, StoreError::Conflict(_)) {
        return;
    }
    let rows = {
        let mut log = run.log();
        log.approved_calls.unstored.clear();
        let mut rows = rows_of(run, &log, &log.approved_calls.outcomes);
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
    if let Err(error) = record_at_end(run, rows).await {
        tracing::error!(
            conversation = %run.key(),
            error = &error as &dyn std::error::Error,
            "the outcomes of approved tool calls could not be recorded"
        );
    }
}

/// Stores rows of the record at the current revision of the conversation. Does nothing if the
/// conversation has another incarnation, for example because it was deleted.
async fn record_at_end(run: &Run, rows: Vec<ToolRecord>) -> Result<(), StoreError> {
    const MAX_TRIES: usize = 8;
    let Some(store) = run.store() else { return Ok(()) };
    let own = run.log().conversation.revision.incarnation;
    let mut outcome = Ok(());
    for _ in 0..MAX_TRIES {
        let revision = (**store).head(run.key()).await?.revision;
        if revision.incarnation != own {
            return Ok(());
        }
        let write = write_of_claims(run, &run.log(), revision, Vec::new()).with_tools(rows.clone());
        let appended = (**store).append(Slot::unbounded(), vec![write]).await;
        outcome = appended.map(drop).map_err(|error| error.source);
        match &outcome {
            Err(StoreError::Conflict(_)) => {}
            Ok(()) | Err(_) => break,
        }
    }
    outcome
}

/// Returns the claims of `calls`, and rows that set the end of these claims to `until`, or withdraw
/// them (`None`). With the claims, the store refuses the write if another attempt has claimed one of
/// the calls.
fn held_rows(
    log: &RunLog,
    calls: impl IntoIterator<Item = (CallOfRun, SystemTime)>,
    until: Option<SystemTime>,
) -> (Vec<ToolRecord>, Vec<Claim>) {
    let rows = calls.into_iter().filter_map(|(call, started_at)| {
        let mut row = log.call_records.call_row(&log.conversation, call)?;
        (row.started_at, row.held_until) = (Some(started_at), until);
        let claim = Claim { call: row.call, started_at: Some(started_at) };
        Some((row, claim))
    });
    rows.unzip()
}
