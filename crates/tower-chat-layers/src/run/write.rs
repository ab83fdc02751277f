//! Builds the contents of one write of a run, and submits the write.

use std::sync::Arc;

use futures_util::FutureExt;
use tower_chat_core::{
    Answer, Message, MessageId, PersistenceMode, Role, Usage,
    store::{
        ServiceIdChange, StoreError,
        author::{Claim, Close, Slot, Write},
    },
};

use super::{
    Run, Submission, WritePoint,
    approvals::pending_call_not_kept,
    approved_calls::{claim_lease, keep_claims_held, record_outcomes_again},
    compose::Composed,
    effect::{Effect, RunWrite},
    events::{Event, apply},
    input_digest::mark_input,
    journaled::lease::{keep_lease, stage_lease},
    log::RunLog,
    model_request::strip_sentinel,
    records::Records,
    service_id::adopt_answer,
    submission::FailedSubmission,
    usage::activity_now,
};
use crate::{NotStored, PersistenceError, StoreFailure, replay::mark_ended_by};

/// The contents of a write in their stored form.
struct Contents {
    stored: Vec<Arc<Message>>,
    records: Records,
    claims: Vec<Claim>,
    service_id: Option<ServiceIdChange>,
    close: Option<Close>,
}

impl Run {
    /// Applies an event and submits its write, if there is one.
    pub(super) fn record(
        &self,
        log: &mut RunLog,
        slot: Result<Slot, StoreError>,
        event: Event,
    ) -> (Submission, Option<Write>) {
        if self.stored().is_none() {
            return (Submission::nothing(), None);
        }
        match apply(log, self.policy(), event) {
            Effect::Nothing => (Submission::nothing(), None),
            Effect::Write(write) => submit(self, log, slot, *write),
            Effect::AddUnsubmitted(messages, adopted) => {
                log.conversation.add_unsubmitted(
                    messages,
                    adopted,
                    self.clock().whole_milliseconds(),
                );
                (Submission::nothing(), None)
            }
            Effect::Leave(until) => (stage_lease(self, log, slot, Some(until)), None),
        }
    }

    /// Applies an event and submits its write without waiting for the outcome.
    pub(crate) fn note(&self, event: Event) {
        let slot = Ok(Slot::unbounded().without_blocking());
        let submission = self.record(&mut self.log(), slot, event).0;
        drop(submission);
    }

    /// Applies an event and waits until its write is durable, or is in the outbox. The write is
    /// submitted at the first poll of the future.
    pub(crate) async fn write(&self, event: Event) -> Result<(), PersistenceError> {
        let submission = self.record(&mut self.log(), Ok(Slot::unbounded()), event).0;
        self.await_outcome(submission, || None).await
    }

    /// Reserves a slot in the store's queue. If this fails under [`StoreFailure::Continue`], the
    /// write that uses the returned value fails with the error.
    ///
    /// A nested run does not wait for a slot, because the outer runs may occupy all slots until the
    /// nested run ends.
    pub(crate) async fn reserve(&self) -> Result<Result<Slot, StoreError>, PersistenceError> {
        let Some(stored) = self.stored() else { return Ok(Ok(Slot::unbounded())) };
        let reserved = stored.store.reserve();
        let slot = match stored.is_nested {
            true => reserved.now_or_never().unwrap_or_else(|| Ok(Slot::unbounded())),
            false => reserved.await,
        };
        match (slot, store_failure(self)) {
            (Err(source), StoreFailure::FailCall) => {
                Err(not_stored(self, FailedSubmission { source, unsaved: Vec::new() }, None))
            }
            (slot, _) => Ok(slot),
        }
    }

    /// Waits for the outcome of a submission. An error contains the value of `answer`.
    pub(super) async fn await_outcome(
        &self,
        mut submission: Submission,
        answer: impl FnOnce() -> Option<Answer>,
    ) -> Result<(), PersistenceError> {
        match submission.outcome().await {
            Ok(unsaved) => {
                if let Some(unsaved) = unsaved {
                    self.log().unsaved = unsaved;
                }
                Ok(())
            }
            Err(failed) => Err(refused_write(self, failed, answer()).await),
        }
    }
}

/// Stores the rest of a run after its answer is complete. The first `before` messages of the answer
/// are from an earlier attempt. In per-service-call mode, only the results at the end of the run
/// are not stored yet. They are added to the record of tool calls, and a failure of this write is
/// only logged.
///
/// For a run that is stored at its end, the answer is refused if its service id is missing or not
/// allowed, or if a hook does not allow the call of an approval request to be stored. Each error
/// contains the answer.
pub(crate) async fn complete_run(
    run: &Run,
    slot: Result<Slot, StoreError>,
    mut answer: Answer,
    before: usize,
) -> Result<Answer, PersistenceError> {
    let submission = {
        let mut log = run.log();
        if run.write_point() == WritePoint::End {
            prepare_answer_at_end(run, &mut log, &mut answer, before)?;
        }
        let (messages, ended_by) = (answer.messages.clone(), answer.finish.ended_by);
        run.record(&mut log, slot, Event::Completed { answer: messages, before, ended_by }).0
    };
    match run.stored().map(|stored| stored.stored_as) {
        Some(PersistenceMode::PerRun | PersistenceMode::Journaled) => {
            run.await_outcome(submission, || Some(answer.clone())).await?;
        }
        Some(PersistenceMode::PerServiceCall) | None => {
            let failure = "tool results at the end of a run could not be recorded";
            await_and_log(run, submission, failure).await;
        }
    }
    Ok(answer)
}

/// Sets the message ids in the answer of a run that is stored at its end. Checks that the policy
/// and the hooks allow the answer to be stored.
fn prepare_answer_at_end(
    run: &Run,
    log: &mut RunLog,
    answer: &mut Answer,
    before: usize,
) -> Result<(), PersistenceError> {
    if !log.persister.is_found() {
        // The service id of the answer was not compared with that of the run, because no persister
        // below the tool loop has received the service calls.
        let is_of_model = answer.messages.iter().any(|message| message.role == Role::Assistant)
            || answer.finish.usage != Usage::default();
        let adopted = match is_of_model {
            true => adopt_answer(run, log, answer)?,
            false => log.conversation.history_owner(),
        };
        log.conversation.service_id = adopted.service_id;
        log.conversation.recording = adopted.recording;
    }
    let new = answer.messages.split_off(before.min(answer.messages.len()));
    let new = log.conversation.added.number_answer(new, run.clock().whole_milliseconds());
    let kept = log.call_records.keep_pending_calls(&new);
    answer.messages.extend(new);
    kept.map_err(|refused| {
        let new = answer.messages.split_off(before.min(answer.messages.len()));
        let answer = Answer::new(new, answer.finish.clone());
        pending_call_not_kept(run, refused, answer)
    })
}

/// Discards the staged messages of a refused run without an answer. A failure is only logged,
/// because the caller receives the error of the refusal.
pub(crate) async fn discard_input(run: &Run) {
    let slot = Ok(Slot::unbounded());
    let submission = run.record(&mut run.log(), slot, Event::InputRefused).0;
    let failure = "the input of a refused run could not be discarded: the run stays open";
    await_and_log(run, submission, failure).await;
}

/// Returns the policy for a failed write, which always fails a journaled run, because all its
/// messages must be durable.
pub(super) fn store_failure(run: &Run) -> StoreFailure {
    match run.records_each_outcome() {
        true => StoreFailure::FailCall,
        false => run.policy().store_failure,
    }
}

/// Adds messages to the run and submits their write, if there is one. The results in `left_out` are
/// stored only in the record.
pub(super) fn submit(
    run: &Run,
    log: &mut RunLog,
    slot: Result<Slot, StoreError>,
    mut write: RunWrite,
) -> (Submission, Option<Write>) {
    let service_id = write.adopted.take().and_then(|it| log.conversation.adopt(it));
    let next = log.conversation.added.next_id();
    let added = log.conversation.added.assign_ids(
        std::mem::take(&mut write.messages),
        write.is_as_stored,
        run.clock().whole_milliseconds(),
    );
    let mut messages = match write.is_as_stored {
        true => added.clone(),
        false => log.conversation.recording.select(added.clone(), &log.conversation.replay),
    };
    let contents = contents(run, log, &mut messages, &mut write, service_id);
    added.iter().for_each(|message| log.conversation.replay.push(message));
    let closes = contents.close.is_some() && log.is_open();
    // The final write of a `FencedAttempt` is made even without contents, because the attempt would
    // otherwise end without an error although another attempt has written.
    let is_fence = write.ends_run && log.fenced.is_some();
    if contents.is_empty() && !closes && !is_fence {
        return (log.submit_unsettled(run, slot, write.ends_run), None);
    }
    // Under each policy, the tool must not run if the write of its claim fails, because another
    // attempt could claim the call.
    let failure = match contents.claims.is_empty() {
        true => store_failure(run),
        false => StoreFailure::FailCall,
    };
    let id = messages.first().and_then(|message| message.id).unwrap_or(next);
    let is_unsettled = write.is_unsettled;
    let write = as_write(run, log, contents, id);
    log.conversation.revision = write.result();
    log.conversation.added.push_submitted(messages);
    let writes = log.with_unsettled(write.clone());
    if is_unsettled {
        log.unsettled.push(write.clone());
    }
    (Submission::submit(run.store(), failure, slot, writes), Some(write))
}

/// Returns the contents of a write with these messages. Adds a message with the mark of the run's
/// end, if no other message of the write can contain the mark.
fn contents(
    run: &Run,
    log: &mut RunLog,
    messages: &mut Vec<Arc<Message>>,
    write: &mut RunWrite,
    service_id: Option<ServiceIdChange>,
) -> Contents {
    // In per-run mode, the write that ends the run contains the whole run.
    let citations = run
        .policy()
        .replay
        .citations_at_save()
        .filter(|_| write.ends_run && log.mode == PersistenceMode::PerRun);
    let truncation = run.policy().truncation;
    let Composed { messages: mut stored, mut records } = match write.is_as_stored {
        true => Composed { messages: messages.clone(), records: Records::default() },
        false => log.call_records.compose(
            &log.conversation,
            messages,
            &write.left_out,
            citations,
            truncation,
        ),
    };
    std::mem::take(&mut write.rows).into_iter().for_each(|row| records.insert(row));
    log.call_records.outcome_rows(&log.conversation, &write.outcomes, truncation, &mut records);
    log.note_end(records.rows());
    if write.ends_run
        && let Some(marker) = log.mark_end(messages, write, &mut stored, &mut records)
    {
        let marker = log.conversation.added.assign_ids(
            vec![Arc::new(marker)],
            false,
            run.clock().whole_milliseconds(),
        );
        stored.extend(marker.iter().cloned());
        messages.extend(marker);
    }
    if let (Some(digest), Some(first)) = (&log.input_digest, stored.first_mut())
        && first.id.is_some_and(|id| id.run == run.id() && id.index == 0)
    {
        mark_input(first, digest);
    }
    if let Some(first) = stored.first_mut() {
        log.refused.store_in(first);
    }
    if let (Some(ended_by), Some(last)) = (write.ended_by, stored.last_mut()) {
        mark_ended_by(last, ended_by);
    }
    let mut claims = Vec::new();
    if !write.starts.is_empty() {
        let now = run.clock().now();
        if let Some(journal) = log.journal.as_deref_mut() {
            journal.started.extend(&write.starts);
        }
        let lease = claim_lease(run, log);
        let until = (!lease.is_zero()).then(|| now + lease);
        claims = log.start_rows(&write.starts, messages, (now, until), &mut records);
        let of_earlier_runs = write.starts.iter().filter(|call| call.0.run != run.id());
        of_earlier_runs.for_each(|call| log.approved_calls.note_claim(*call, now));
        if !claims.is_empty() {
            keep_claims_held(run, log);
        }
    }
    Contents { stored, records, claims, service_id, close: write.close }
}

fn as_write(run: &Run, log: &mut RunLog, contents: Contents, id: MessageId) -> Write {
    let Contents { stored, records, claims, service_id, close } = contents;
    let records = records.into_rows();
    // The store recognises a repetition of a write with messages, but would count the usage of
    // another repeated write twice. The last write of the run reports usage even without messages.
    let reports_usage = !stored.is_empty() || close.is_some();
    let usage = reports_usage.then(|| std::mem::take(&mut log.calls.unreported_usage));
    let activity = activity_now(run).with_usage(usage.unwrap_or_default());
    let range = log.conversation.range_with(&stored);
    let write = Write::new(run.key().clone(), id, log.conversation.revision, stored)
        .with_activity(activity)
        .with_load_from(range)
        .with_claims(claims);
    match (log.journal.as_deref_mut(), service_id) {
        (Some(journal), service_id) => {
            let write = journal.stage(write, records, close, service_id);
            keep_lease(run, journal);
            write
        }
        (None, service_id) => {
            let mut write = write.with_tools(records);
            if let Some(service_id) = service_id {
                write = write.with_service_id(service_id);
            }
            match log.fenced.take() {
                Some(attempt) => attempt.begin_with(write, run.clock().now()),
                None => write,
            }
        }
    }
}

/// Waits for the outcome of a submission, and logs a failure with the text `failure`. For callers
/// that report another error, or that must return the complete answer.
pub(super) async fn await_and_log(run: &Run, mut submission: Submission, failure: &'static str) {
    if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
        tracing::error!(
            conversation = %run.key(),
            error = &source as &dyn std::error::Error,
            "{failure}"
        );
    }
}

/// Returns the error of a write that failed. If another run has written first, also records the
/// outcomes of approved calls, whose tools have run.
async fn refused_write(
    run: &Run,
    failed: FailedSubmission,
    answer: Option<Answer>,
) -> PersistenceError {
    record_outcomes_again(run, &failed.source).await;
    not_stored(run, failed, answer)
}

fn not_stored(run: &Run, failed: FailedSubmission, mut answer: Option<Answer>) -> PersistenceError {
    if let Some(answer) = &mut answer {
        strip_sentinel(answer);
    }
    let FailedSubmission { source, unsaved } = failed;
    let key = run.key().clone();
    PersistenceError::NotStored(Box::new(NotStored { key, source, unsaved, answer }))
}

impl Contents {
    fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.records.rows().is_empty() && self.service_id.is_none()
    }
}

impl RunLog {
    /// Returns the unsettled writes of this run, followed by `write`. The store skips the writes
    /// that it has already applied.
    pub(super) fn with_unsettled(&self, write: Write) -> Vec<Write> {
        self.unsettled.iter().cloned().chain([write]).collect()
    }

    /// If the run ends, submits its unsettled writes again, so that the caller receives an error if
    /// they fail.
    fn submit_unsettled(
        &self,
        run: &Run,
        slot: Result<Slot, StoreError>,
        ends_run: bool,
    ) -> Submission {
        if !ends_run || self.unsettled.is_empty() {
            return Submission::nothing();
        }
        Submission::submit(run.store(), store_failure(run), slot, self.unsettled.clone())
    }
}
