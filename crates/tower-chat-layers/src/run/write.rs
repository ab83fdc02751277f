//! One write of a run: what goes into it, and how it is submitted.

use std::sync::Arc;

use futures_util::FutureExt;
use tower_chat_core::{
    Answer, EndedBy, HistoryOwner, Message, MessageId,
    store::{
        ServiceIdChange, StoreError,
        author::{Claim, Close, Slot, ToolRecord, Write},
    },
};

use super::{
    Run, RunLog, Submission,
    compose::Composed,
    events::{Effect, Event, apply},
    input_digest::mark_input,
    journaled::Journal,
    records::Records,
    service_id::Adopted,
    submission::FailedSubmission,
    tool_events::HeldUntil,
};
use crate::{
    NotStored, PersistenceError, StoreFailure,
    replay::mark_ended_by,
    tool::{CallOfRun, ToolOutcome},
};

/// What goes into one write.
#[derive(Default)]
pub(super) struct RunWrite {
    pub(super) messages: Vec<Arc<Message>>,
    /// Results that no service call has seen.
    pub(super) left_out: Vec<Arc<Message>>,
    /// Who keeps the history from now on, where an answer said so.
    pub(super) adopted: Option<Adopted>,
    /// The messages are all that the run adds, its final answer included.
    pub(super) is_whole_run: bool,
    /// Calls that are about to run.
    pub(super) starts: Vec<CallOfRun>,
    /// What came out of calls whose results are in no message yet.
    pub(super) outcomes: Vec<ToolOutcome>,
    /// How a journaled run ends with it.
    pub(super) close: Option<Close>,
    /// It is the last of its run, which ended on purpose.
    pub(super) ends_run: bool,
    /// What has ended it, apart from the model's own last answer.
    pub(super) ended_by: Option<EndedBy>,
    /// With this answer, which was stored before.
    pub(super) last_response: Vec<Arc<Message>>,
    /// Rows of the record that nothing else in it makes.
    pub(super) rows: Vec<ToolRecord>,
    /// Messages and rows are in the form in which they are stored, and the store numbers them.
    pub(super) is_as_stored: bool,
    /// Its outcome is not waited for, or not of a kind that ends the run: it is submitted again with the
    /// next write, in case the store has refused it.
    pub(super) is_unsettled: bool,
}

impl RunWrite {
    pub(super) fn messages(messages: Vec<Arc<Message>>) -> Self {
        Self { messages, ..Self::default() }
    }
}

/// The contents of a write, in the form in which they are stored.
struct Contents {
    stored: Vec<Arc<Message>>,
    records: Records,
    claims: Vec<Claim>,
    service_id: Option<ServiceIdChange>,
    close: Option<Close>,
}

impl Run {
    /// Decides what an event leads to, and submits it; returns the write, if there is one.
    pub(super) fn record(
        &self,
        log: &mut RunLog,
        slot: Result<Slot, StoreError>,
        event: Event,
    ) -> (Submission, Option<Write>) {
        match apply(log, self.policy(), self.now(), event) {
            Effect::Nothing => (Submission::nothing(), None),
            Effect::Write(write) => self.submit(log, slot, *write),
            Effect::Leave(until) => {
                let leave = |journal: &mut Journal| journal.leave_until(until);
                (self.stage_lease(log, slot, leave), None)
            }
        }
    }

    /// The same where nothing can be awaited.
    pub(crate) fn note(&self, event: Event) {
        let slot = Ok(Slot::unbounded().without_blocking());
        let submission = self.record(&mut self.log(), slot, event).0;
        drop(submission);
    }

    /// The same, and waits until it is durable. It is submitted before the first await.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`].
    pub(crate) async fn write(&self, event: Event) -> Result<(), PersistenceError> {
        let submission = self.record(&mut self.log(), Ok(Slot::unbounded()), event).0;
        self.settled(submission, || None).await
    }

    /// The run has its answer, of which the first `before` messages are of an earlier attempt: stores what
    /// is left to store of it. Of a run that is stored call by call the record alone is left, and that it
    /// could not be stored is logged and no more.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`], with the answer.
    pub(crate) async fn complete(
        &self,
        answer: Answer,
        before: usize,
    ) -> Result<Answer, PersistenceError> {
        let event = Event::Completed { answer: answer.messages.clone(), before };
        let submission = self.record(&mut self.log(), Ok(Slot::unbounded()), event).0;
        match self.records_each_outcome() {
            true => self.settled(submission, || Some(answer.clone())).await?,
            false => {
                let failure = "tool results at the end of a run could not be recorded";
                self.logged(submission, failure).await;
            }
        }
        Ok(answer)
    }

    /// Takes back what is staged, if that is no more than the run's input. That it could not be taken
    /// back is logged and no more: the refusal matters to the caller.
    pub(crate) async fn discard_input(&self) {
        let slot = Ok(Slot::unbounded());
        let submission = self.record(&mut self.log(), slot, Event::InputRefused).0;
        let failure = "the input of a refused run could not be taken back, the run is open";
        self.logged(submission, failure).await;
    }

    /// Takes messages into the run and submits them; returns the write, if there is something to
    /// write. Results that are left out of the history go into the record alone.
    pub(super) fn submit(
        &self,
        log: &mut RunLog,
        slot: Result<Slot, StoreError>,
        mut write: RunWrite,
    ) -> (Submission, Option<Write>) {
        let service_id = write.adopted.take().and_then(|it| log.conversation.adopt(it));
        let next = log.conversation.next_id(self.id());
        log.conversation.taken += write.messages.len();
        let taken = std::mem::take(&mut write.messages);
        let mut messages = match write.is_as_stored {
            true => taken.clone(),
            false => log.conversation.recording.select(taken.clone(), &log.conversation.replay),
        };
        let contents = self.contents(log, &mut messages, &mut write, service_id);
        taken.iter().for_each(|message| log.conversation.replay.push(message));
        if contents.is_empty() && !(contents.close.is_some() && log.is_open()) {
            return (Submission::nothing(), None);
        }
        // A claim protects a tool only once it is durable, so a failed claim write fails the call.
        let failure = match contents.claims.is_empty() {
            true => self.store_failure(),
            false => StoreFailure::FailCall,
        };
        let id = messages.first().and_then(|message| message.id).unwrap_or(next);
        let is_unsettled = write.is_unsettled;
        let write = self.as_write(log, contents, id);
        log.conversation.revision = write.result();
        log.conversation.added.extend(messages);
        let writes = log.with_unsettled(write.clone());
        if is_unsettled {
            log.unsettled.push(write.clone());
        }
        (Submission::submit(self.store(), failure, slot, writes), Some(write))
    }

    /// The contents of a write of these messages, to which the mark of the run's end is added where
    /// it has to be a message.
    fn contents(
        &self,
        log: &mut RunLog,
        messages: &mut Vec<Arc<Message>>,
        write: &mut RunWrite,
        service_id: Option<ServiceIdChange>,
    ) -> Contents {
        let citations = self.policy().replay.citations_at_save().filter(|_| write.is_whole_run);
        let truncation = self.policy().truncation;
        let Composed { messages: mut stored, mut records } = match write.is_as_stored {
            true => Composed { messages: messages.clone(), records: Records::default() },
            false => log.compose(messages, &write.left_out, citations, truncation),
        };
        std::mem::take(&mut write.rows).into_iter().for_each(|row| records.put(row));
        log.outcome_rows(&write.outcomes, truncation, &mut records);
        log.note_end(records.rows());
        if write.ends_run
            && let Some(marker) =
                log.mark_end(messages, &write.last_response, &mut stored, &mut records)
        {
            let marker = log.number(log.conversation.taken, vec![Arc::new(marker)], self.now());
            log.conversation.taken += marker.len();
            stored.extend(marker.iter().cloned());
            messages.extend(marker);
        }
        if let (Some(digest), Some(first)) = (&log.input_digest, stored.first_mut())
            && first.id.is_some_and(|id| id.run == self.id() && id.index == 0)
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
            let now = self.0.clock.now();
            if let Some(journal) = log.journal.as_deref_mut() {
                journal.note_started(&write.starts);
            }
            let lease = self.claim_lease(log);
            let until = HeldUntil((!lease.is_zero()).then(|| now + lease));
            claims = log.start_rows(&write.starts, messages, (now, until), &mut records);
            let of_earlier_runs = write.starts.iter().filter(|call| call.0.run != self.id());
            of_earlier_runs.for_each(|call| log.approved_calls.note_claim(*call, now));
            if !claims.is_empty() {
                self.keep_claims_held(log);
            }
        }
        Contents { stored, records, claims, service_id, close: write.close }
    }

    /// The contents as a write of this run, staged if the run is journaled.
    fn as_write(&self, log: &mut RunLog, contents: Contents, id: MessageId) -> Write {
        let Contents { stored, records, claims, service_id, close } = contents;
        let records = records.into_rows();
        // Nothing of a run is submitted after its end.
        let activity = self.activity(log, !stored.is_empty() || close.is_some());
        let mut write = Write::new(self.key().clone(), id, log.conversation.revision, stored)
            .with_activity(activity);
        if !claims.is_empty() {
            write = write.with_claims(claims);
        }
        match (log.journal.as_deref_mut(), service_id) {
            (Some(journal), service_id) => {
                let write = journal.stage(write, records, close, service_id);
                self.keep_lease(journal);
                write
            }
            (None, Some(service_id)) => write.with_tools(records).with_service_id(service_id),
            (None, None) => write.with_tools(records),
        }
    }

    /// A slot in the store's queue. Under [`StoreFailure::Continue`] the failure to get one is
    /// the outcome of the write it was for.
    ///
    /// A run inside of another waits for none: those that it is inside of may hold every slot
    /// until it has ended.
    pub(crate) async fn reserve(&self) -> Result<Result<Slot, StoreError>, PersistenceError> {
        let reserved = self.store().reserve();
        let slot = match self.0.is_nested {
            true => reserved.now_or_never().unwrap_or_else(|| Ok(Slot::unbounded())),
            false => reserved.await,
        };
        match (slot, self.store_failure()) {
            (Err(source), StoreFailure::FailCall) => {
                Err(self.not_stored(FailedSubmission { source, unsaved: Vec::new() }, None))
            }
            (slot, _) => Ok(slot),
        }
    }

    /// Waits for a submission whose failure fails the call, with the answer.
    pub(super) async fn settled(
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
            Err(failed) => Err(self.refused(failed, answer()).await),
        }
    }

    /// Waits for a submission whose failure is logged and no more, since the caller has another error to
    /// report, or everything that the model was paid for.
    pub(super) async fn logged(&self, mut submission: Submission, failure: &'static str) {
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::error!(
                conversation = %self.key(),
                error = &source as &dyn std::error::Error,
                "{failure}"
            );
        }
    }

    /// The error of a write that failed. Where another run has written first, what came out of
    /// approved calls is recorded all the same.
    async fn refused(&self, failed: FailedSubmission, answer: Option<Answer>) -> PersistenceError {
        self.record_outcomes_again(&failed.source).await;
        self.not_stored(failed, answer)
    }

    fn not_stored(&self, failed: FailedSubmission, mut answer: Option<Answer>) -> PersistenceError {
        if let Some(answer) = &mut answer {
            strip_sentinel(answer);
        }
        let FailedSubmission { source, unsaved } = failed;
        let key = self.key().clone();
        PersistenceError::NotStored(Box::new(NotStored { key, source, unsaved, answer }))
    }
}

impl Contents {
    fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.records.rows().is_empty() && self.service_id.is_none()
    }
}

impl RunLog {
    /// A write after those of this run whose outcome nobody has waited for. The store recognises
    /// what it has; what it refused is submitted again.
    pub(super) fn with_unsettled(&self, write: Write) -> Vec<Write> {
        self.unsettled.iter().cloned().chain([write]).collect()
    }
}

/// The sentinel is for the tool loop alone.
pub(crate) fn strip_sentinel(answer: &mut Answer) {
    if answer.finish.history_owner == Some(HistoryOwner::Local) {
        answer.finish.history_owner = None;
    }
}
