//! Stores the start and the outcome of a tool call before a message contains its result.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    Message, ToolStatus,
    store::{
        StoreError,
        author::{Claim, RecordedResult, Slot, ToolRecord},
    },
};

use super::{
    Run, WritePoint,
    call_records::{CallOfMessage, CallRecords, StoredPosition},
    conversation::LoadedConversation,
    effect::Effect,
    events::{Event, apply},
    log::RunLog,
    records::Records,
    write::submit,
};
use crate::{
    PersistenceError,
    replay::Truncation,
    tool::{CallOfRun, Redaction, ToolOutcome, ToolReport},
};

/// Stores that the tools of these calls are about to start, and claims the calls that waited for
/// approval. If several attempts claim the same call, only one of them succeeds.
///
/// After an error, the caller must not run any of the tools.
pub(crate) async fn tools_started(
    run: &Run,
    calls: Vec<CallOfRun>,
) -> Result<(), PersistenceError> {
    let started = write_beside(run, Event::ToolsStart { calls }).await;
    if let Err(PersistenceError::NotStored(lost)) = &started
        && let StoreError::Conflict(_) | StoreError::Claimed { .. } = lost.source
    {
        // Another attempt has claimed the calls.
        run.log().approved_calls.forget_claims();
    }
    started
}

/// Stores the outcome of a call, and the start of the call `next`. `beside` are the outcomes of
/// calls of the same round that were not run. If the caller disconnects while the outcome waits for
/// a slot in the store's queue, the outcome is submitted without a slot.
pub(crate) async fn tool_finished(
    run: &Run,
    outcome: ToolOutcome,
    beside: Vec<ToolOutcome>,
    next: Option<CallOfRun>,
    ends_run: bool,
) -> Result<(), PersistenceError> {
    let call = outcome.0;
    if call.0.run != run.id() {
        run.log().approved_calls.note_outcome(&outcome);
    }
    // A separate write, because a refused claim would otherwise prevent the outcome from being
    // stored.
    let (claim, next): (Vec<_>, Vec<_>) = next.into_iter().partition(|next| next.0.run != run.id());
    let next = next.into_iter().next();
    let mut pending = PendingOutcome {
        run,
        event: Some(Event::ToolFinished { outcome, beside, next, ends_run }),
    };
    let slot = reserve_beside(run).await;
    let Some(event) = pending.event.take() else { return Ok(()) };
    let submission = run.record(&mut run.log(), slot?, event).0;
    run.await_outcome(submission, || None).await?;
    run.log().approved_calls.note_stored(call);
    tools_started(run, claim).await
}

/// Applies an event and waits until its write is durable. Reserves a slot in the store's queue only
/// for a write.
pub(crate) async fn write_beside(run: &Run, event: Event) -> Result<(), PersistenceError> {
    let effect = apply(&mut run.log(), run.policy(), event);
    let Effect::Write(write) = effect else { return Ok(()) };
    let slot = reserve_beside(run).await?;
    let submission = submit(run, &mut run.log(), slot, *write).0;
    run.await_outcome(submission, || None).await
}

/// Returns a slot in the store's queue for a write before the end of the run. A run that is stored
/// at its end already has a slot, and could wait forever for a second one.
pub(super) async fn reserve_beside(
    run: &Run,
) -> Result<Result<Slot, StoreError>, PersistenceError> {
    match run.write_point() {
        WritePoint::End => Ok(Ok(Slot::unbounded())),
        WritePoint::EachCall => run.reserve().await,
    }
}

/// The outcome of a call before its submission. If it is dropped while the caller waits for a slot,
/// the outcome is submitted without a slot.
struct PendingOutcome<'a> {
    run: &'a Run,
    event: Option<Event>,
}

impl Drop for PendingOutcome<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.run.note(event);
        }
    }
}

impl RunLog {
    /// Adds rows for stored calls whose tools are about to start, and returns the claims of the
    /// calls that waited for approval. `held_until` is the end of these claims. `None` if they do
    /// not expire, because no other process can access the store.
    pub(super) fn start_rows(
        &self,
        calls: &[CallOfRun],
        messages: &[Arc<Message>],
        (now, held_until): (SystemTime, Option<SystemTime>),
        records: &mut Records,
    ) -> Vec<Claim> {
        let mut claims = Vec::new();
        for call in calls {
            let stored = self.call_records.stored_call(&self.conversation, *call, messages);
            let Some((row, found)) = stored else { continue };
            let mut row = records.get(row.call).cloned().unwrap_or(row);
            row.started_at = Some(now);
            if found.waits_for_approval {
                let started_at = self.prior_attempts.starts.get(&row.call).copied();
                claims.push(Claim { call: row.call, started_at });
                row.held_until = held_until;
            }
            records.insert(row);
        }
        claims
    }
}

impl CallRecords {
    /// Adds rows with outcomes whose results no message contains yet, after the hooks and the
    /// truncation. A call that waited for approval remains pending until its result is part of the
    /// history.
    pub(super) fn outcome_rows(
        &self,
        conversation: &LoadedConversation,
        outcomes: &[ToolOutcome],
        truncation: Truncation,
        records: &mut Records,
    ) {
        for (call, result, report) in outcomes {
            let Some((mut row, found)) = self.stored_call(conversation, *call, &[]) else {
                continue;
            };
            let retained =
                self.retained_outcome(conversation, *call, &found.call, result, Some(report));
            let Some(Redaction { result: changed, error: changed_error, .. }) = retained else {
                continue;
            };
            let original = result;
            let mut result = changed.unwrap_or_else(|| Box::new(original.clone()));
            truncation.apply(&mut result);
            result.queued.clone_from(&original.queued);
            if !found.waits_for_approval {
                row.status = report.status;
            }
            row.result = RecordedResult::Apart(result);
            row.error = changed_error.unwrap_or_else(|| report.error.clone());
            row.started_at = report.started_at;
            row.finished_at = report.finished_at;
            records.insert(row);
        }
    }

    /// Returns the outcomes of the calls whose results are in these messages, except calls that
    /// needed approval, whose outcomes are recorded when their tools finish.
    pub(super) fn outcomes_in(
        &self,
        conversation: &LoadedConversation,
        inputs: &[Arc<Message>],
    ) -> Vec<ToolOutcome> {
        if inputs.iter().all(|message| message.results().next().is_none()) {
            return Vec::new();
        }
        let answered = conversation.replay.clone().push_answering(inputs);
        let mut outcomes = Vec::new();
        for (message, asked) in inputs.iter().zip(answered) {
            let reports = message.id.and_then(|id| self.reports.get(&id));
            let mut reports = reports.into_iter().flatten();
            for (result, asked) in message.results().zip(asked) {
                let report = reports.next().cloned();
                let Some(asked) = asked.filter(|asked| !asked.needed_approval) else { continue };
                let report = report.unwrap_or_else(|| ToolReport::of_result(result));
                outcomes.push((asked.call_position, result.clone(), report));
            }
        }
        outcomes
    }

    pub(super) fn call_row(
        &self,
        conversation: &LoadedConversation,
        call: CallOfRun,
    ) -> Option<ToolRecord> {
        Some(self.stored_call(conversation, call, &[])?.0)
    }

    /// Returns a call in the store or in `messages`, which are about to be stored, with its row.
    fn stored_call(
        &self,
        conversation: &LoadedConversation,
        call: CallOfRun,
        messages: &[Arc<Message>],
    ) -> Option<(ToolRecord, CallOfMessage)> {
        let StoredPosition { call: position, round_index } =
            self.stored_position(conversation, call)?;
        let found = self.call_of_conversation(conversation, call, messages)?;
        let mut row = ToolRecord::pending(position, round_index, &*found.call_id, &found.call.name);
        if found.waits_for_approval {
            row.status = ToolStatus::PendingApproval;
        }
        Some((row, found))
    }
}
