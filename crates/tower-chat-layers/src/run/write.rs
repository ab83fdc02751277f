//! One write of a run: what goes into it, and how it is submitted.

use std::sync::Arc;

use futures_util::FutureExt;
use tower_chat_core::{
    Answer, EndedBy, HistoryOwner, Message, MessageId,
    store::{
        ServiceIdChange, StoreError,
        author::{Claim, Close, Slot, Write},
    },
};

use super::{
    Run, State, Submission, compose::Composed, input_digest::mark_input, records::Records,
    service_id::Adopted, submission::FailedSubmission, tool_events::HeldUntil,
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
    /// Staged messages that are stored anew, without the sources they do not cite.
    replaced: Vec<(u64, Arc<Message>)>,
    service_id: Option<ServiceIdChange>,
    close: Option<Close>,
}

impl Run {
    /// Takes messages into the run and submits them; returns the write, if there is something to
    /// write. Results that are left out of the history go into the record alone.
    pub(super) fn submit(
        &self,
        state: &mut State,
        slot: Result<Slot, StoreError>,
        mut write: RunWrite,
    ) -> (Submission, Option<Write>) {
        let service_id = write.adopted.take().and_then(|it| state.conversation.adopt(it));
        let next = state.conversation.next_id(self.id());
        state.conversation.taken += write.messages.len();
        let messages = std::mem::take(&mut write.messages);
        let mut messages =
            state.conversation.recording.select(messages, &state.conversation.replay);
        let contents = self.contents(state, &mut messages, &write, service_id);
        let is_open = state.of_mode.journal().is_some_and(|journal| journal.is_open());
        if contents.is_empty() && !(contents.close.is_some() && is_open) {
            return (Submission::nothing(), None);
        }
        // A claim protects a tool only once it is durable, so a failed claim write fails the call.
        let failure = match contents.claims.is_empty() {
            true => self.store_failure(),
            false => StoreFailure::FailCall,
        };
        let id = messages.first().and_then(|message| message.id).unwrap_or(next);
        let write = self.as_write(state, contents, id);
        state.conversation.revision = write.result();
        state.conversation.added.extend(messages);
        let writes = state.with_unsettled(write.clone());
        (Submission::submit(self.store(), failure, slot, writes), Some(write))
    }

    /// The contents of a write of these messages, to which the mark of the run's end is added where
    /// it has to be a message.
    fn contents(
        &self,
        state: &mut State,
        messages: &mut Vec<Arc<Message>>,
        write: &RunWrite,
        service_id: Option<ServiceIdChange>,
    ) -> Contents {
        let citations = self.policy().replay.citations_at_save();
        let truncation = self.policy().truncation;
        let of_whole_run = citations.filter(|_| write.is_whole_run);
        let Composed { messages: mut stored, mut records } =
            state.compose(messages, &write.left_out, of_whole_run, truncation);
        state.outcome_rows(&write.outcomes, truncation, &mut records);
        state.note_end(records.rows());
        if write.ends_run
            && let Some(marker) =
                state.mark_end(messages, &write.last_response, &mut stored, &mut records)
        {
            let marker = self.number(state.conversation.taken, vec![Arc::new(marker)]);
            state.conversation.taken += marker.len();
            stored.extend(marker.iter().cloned());
            messages.extend(marker);
        }
        if let (Some(digest), Some(first)) = (&state.input_digest, stored.first_mut())
            && first.id.is_some_and(|id| id.run == self.id() && id.index == 0)
        {
            mark_input(first, digest);
        }
        if let Some(first) = stored.first_mut() {
            state.refused.store_in(first);
        }
        if let (Some(ended_by), Some(last)) = (write.ended_by, stored.last_mut()) {
            mark_ended_by(last, ended_by);
        }
        let close = write.close;
        let replaced = match (state.of_mode.journal_mut(), citations) {
            (Some(journal), Some(citations)) => {
                journal.leave_out_uncited(citations, close, &mut stored)
            }
            _ => Vec::new(),
        };
        let mut claims = Vec::new();
        if !write.starts.is_empty() {
            let now = self.0.clock.now();
            if let Some(journal) = state.of_mode.journal_mut() {
                journal.note_started(&write.starts);
            }
            let lease = self.claim_lease(state);
            let until = HeldUntil((!lease.is_zero()).then(|| now + lease));
            claims = state.start_rows(&write.starts, messages, (now, until), &mut records);
            let of_earlier_runs = write.starts.iter().filter(|call| call.0.run != self.id());
            of_earlier_runs.for_each(|call| state.approved_calls.note_claim(*call, now));
            if !claims.is_empty() {
                self.keep_claims_held(state);
            }
        }
        Contents { stored, records, claims, replaced, service_id, close }
    }

    /// The contents as a write of this run, staged if the run is journaled.
    fn as_write(&self, state: &mut State, contents: Contents, id: MessageId) -> Write {
        let Contents { stored, records, claims, replaced, service_id, close } = contents;
        let records = records.into_rows();
        let activity = self.activity(state, !stored.is_empty());
        let mut write = Write::new(self.key().clone(), id, state.conversation.revision, stored)
            .with_activity(activity);
        if !claims.is_empty() {
            write = write.with_claims(claims);
        }
        if !replaced.is_empty() {
            write = write.replacing(replaced);
        }
        match (state.of_mode.journal_mut(), service_id) {
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

    /// Waits for a submission whose failure fails the call.
    pub(super) async fn settled(&self, mut submission: Submission) -> Result<(), PersistenceError> {
        match submission.outcome().await {
            Ok(_) => Ok(()),
            Err(failed) => Err(self.refused(failed, None).await),
        }
    }

    /// The error of a write that failed. Where another run has written first, what came out of
    /// approved calls is recorded all the same.
    pub(super) async fn refused(
        &self,
        failed: FailedSubmission,
        answer: Option<Answer>,
    ) -> PersistenceError {
        self.record_outcomes_again(&failed.source).await;
        self.not_stored(failed, answer)
    }

    pub(super) fn not_stored(
        &self,
        failed: FailedSubmission,
        mut answer: Option<Answer>,
    ) -> PersistenceError {
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

impl State {
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
