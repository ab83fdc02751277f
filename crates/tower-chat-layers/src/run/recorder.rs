//! What is written of a run, and when, by its mode.
//!
//! The events of `docs/contract.md` are methods here and in the file of each mode: [`PerRun`],
//! [`PerServiceCall`] and [`Journaled`]. The tool loop and the layers call those of [`Run`], and do
//! not ask which mode it is.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    Answer, BoxError, Message,
    store::{
        StoreError,
        author::{Close, Slot},
    },
};

use super::{
    Run, State, Submission, journaled::Journaled, per_run::PerRun,
    per_service_call::PerServiceCall, service_call::OpenCall, write::RunWrite,
};
use crate::{
    PersistenceError, PersistenceMode, StoreFailure, UnansweredInputs,
    next_step::NextStep,
    policy::{JournalPolicy, RunEnd},
    tool::{CallOfRun, ToolOutcome},
};

/// A run in the view of its mode.
pub(super) enum Recorder<'r> {
    PerRun(PerRun<'r>),
    PerServiceCall(PerServiceCall<'r>),
    Journaled(Journaled<'r>),
}

/// Why nobody works on an open run any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveCause {
    /// It has failed.
    Failed,
    /// Its caller dropped it.
    Disconnected,
}

impl Run {
    pub(super) fn recorder(&self) -> Recorder<'_> {
        if self.is_written_at_end() {
            return Recorder::PerRun(PerRun(self));
        }
        match self.0.mode {
            PersistenceMode::Journaled => Recorder::Journaled(Journaled(self)),
            PersistenceMode::PerRun | PersistenceMode::PerServiceCall => {
                Recorder::PerServiceCall(PerServiceCall(self))
            }
        }
    }

    /// Whether something is written when the run begins, for which the layer above the tool loop
    /// reserves a slot before the model is paid.
    pub(crate) fn reserves_at_beginning(&self, input: &[Arc<Message>]) -> bool {
        match self.recorder() {
            Recorder::PerRun(_) => true,
            Recorder::PerServiceCall(_) => false,
            Recorder::Journaled(_) => !input.is_empty(),
        }
    }

    /// The run begins: takes the input that is not stored yet, and the slot that was reserved.
    ///
    /// # Errors
    ///
    /// If the input could not be staged.
    pub(crate) async fn begin_input(
        &self,
        slot: Result<Slot, StoreError>,
        input: Vec<Arc<Message>>,
    ) -> Result<(), PersistenceError> {
        match self.recorder() {
            Recorder::PerRun(run) => run.begin_input(slot, input),
            Recorder::PerServiceCall(_) => {}
            Recorder::Journaled(run) => run.begin_input(slot, input).await?,
        }
        Ok(())
    }

    /// The run has its answer: stores what is left to store, before the first await. `before` of the
    /// answer's messages are of an earlier attempt, and stored.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`], or if the answer cannot be stored, by policy. Both carry it.
    pub(crate) async fn finish(
        &self,
        answer: Answer,
        before: usize,
    ) -> Result<Answer, PersistenceError> {
        match self.recorder() {
            Recorder::PerRun(run) => return run.finish(answer, before).await,
            Recorder::PerServiceCall(run) => run.finish(&answer.messages, before).await,
            Recorder::Journaled(run) => run.finish(&answer, before).await?,
        }
        Ok(answer)
    }

    /// A run that no layer above the tool loop has begun is ended by a tool, whose results these are.
    pub(crate) async fn finish_alone(&self, results: &[Arc<Message>]) {
        if let Recorder::PerServiceCall(run) = self.recorder() {
            run.finish(results, 0).await;
        }
    }

    /// The run was found complete in the store: closes it if it is open.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`].
    pub(crate) async fn close_complete(&self, answer: &Answer) -> Result<(), PersistenceError> {
        match self.recorder() {
            Recorder::PerRun(_) | Recorder::PerServiceCall(_) => Ok(()),
            Recorder::Journaled(run) => run.finish(answer, answer.messages.len()).await,
        }
    }

    /// The run is over for its caller, whether it came to its end or not. It is a submission, for
    /// where nothing can be awaited.
    pub(crate) fn leave(&self, cause: LeaveCause) {
        match self.recorder() {
            Recorder::PerRun(run) => run.leave(),
            Recorder::PerServiceCall(run) => run.leave(),
            Recorder::Journaled(run) => run.leave(cause),
        }
    }

    /// The run has failed before the model had answered anything: ends it where it stands, if it is
    /// open and the policy is not to leave it so.
    pub(crate) async fn end_unanswered(
        &self,
        error: &BoxError,
        end: impl FnOnce(&JournalPolicy, &BoxError, u32) -> Option<RunEnd>,
    ) {
        if let Recorder::Journaled(run) = self.recorder()
            && let Some(attempt) = run.unanswered_attempt()
            && let Some(end) = end(&self.policy().journal, error, attempt)
        {
            run.end(end).await;
        }
    }

    /// Takes back what is staged, if that is no more than the run's input: the run was refused
    /// before anything came of it.
    pub(crate) async fn discard_input(&self) {
        if let Recorder::Journaled(run) = self.recorder() {
            run.discard_input().await;
        }
    }

    /// Stores results that a tool loop had ready for a service call that it will not make, and
    /// before the first call the input too. A submission, so that it can be made where nothing can
    /// be awaited.
    pub(crate) fn submit_results(&self, messages: Vec<Arc<Message>>) {
        match self.recorder() {
            Recorder::PerRun(_) => {}
            Recorder::PerServiceCall(PerServiceCall(run)) | Recorder::Journaled(Journaled(run)) => {
                run.submit_messages(messages);
            }
        }
    }

    /// The caller has gone away while tools ran, which were dropped: records that their calls may or
    /// may not have taken effect, where nobody goes on with them.
    pub(crate) fn note_interrupted(&self, calls: Vec<(CallOfRun, SystemTime)>) {
        if let Recorder::PerServiceCall(run) = self.recorder() {
            run.note_interrupted(calls);
        }
    }

    /// Whether the outcome of each tool is durable before the next service call, so that results
    /// which no call has carried are not submitted by themselves.
    pub(crate) fn records_each_outcome(&self) -> bool {
        matches!(self.recorder(), Recorder::Journaled(_))
    }

    /// What happens when a write fails. A journaled run promises that everything is durable, so its
    /// calls fail with the write.
    pub(super) fn store_failure(&self) -> StoreFailure {
        match self.recorder() {
            Recorder::PerRun(_) | Recorder::PerServiceCall(_) => self.policy().store_failure,
            Recorder::Journaled(_) => StoreFailure::FailCall,
        }
    }
}

impl Recorder<'_> {
    /// A service call was answered, and this follows: adds to its write what is stored with it.
    pub(super) fn call_answered(
        &self,
        write: &mut RunWrite,
        step: Option<&NextStep>,
        first_calls: Vec<CallOfRun>,
    ) {
        write.ends_run = step.is_some_and(NextStep::ends_run);
        if let Self::Journaled(_) = self {
            write.starts = first_calls;
            write.close = write.ends_run.then_some(Close::Commit);
        }
    }

    /// A service call has failed, or its answer cannot be stored: submits what is kept of it.
    pub(super) fn call_failed(
        &self,
        call: &mut OpenCall,
        slot: Result<Slot, StoreError>,
        kept: UnansweredInputs,
    ) -> Submission {
        match self {
            Self::PerRun(_) => Submission::nothing(),
            Self::PerServiceCall(run) => run.call_failed(call, slot, kept),
            Self::Journaled(run) => {
                run.call_unanswered(call);
                Submission::nothing()
            }
        }
    }

    /// A service call was dropped before its end: submits what is kept of it.
    pub(super) fn call_cancelled(&self, call: &mut OpenCall, slot: Result<Slot, StoreError>) {
        match self {
            Self::PerRun(_) => {}
            Self::PerServiceCall(run) => run.call_cancelled(call, slot),
            Self::Journaled(run) => run.call_unanswered(call),
        }
    }

    /// A service call was refused after its answer had come: submits the results it has carried to
    /// the record alone. Their tools have run, but the history goes on without the call.
    pub(super) fn results_refused(
        &self,
        state: &mut State,
        slot: Result<Slot, StoreError>,
        inputs: &[Arc<Message>],
    ) -> Submission {
        match self {
            Self::PerServiceCall(run) => run.results_refused(state, slot, inputs),
            // Nothing of the run is stored, or the results are already, one by one.
            Self::PerRun(_) | Self::Journaled(_) => Submission::nothing(),
        }
    }

    /// What is written with the outcome of a call besides it.
    pub(super) fn with_outcome(
        &self,
        outcome: ToolOutcome,
        beside: Vec<ToolOutcome>,
        ends_run: bool,
    ) -> RunWrite {
        match self {
            Self::PerRun(_) | Self::PerServiceCall(_) => {
                RunWrite { outcomes: vec![outcome], ..RunWrite::default() }
            }
            Self::Journaled(run) => run.with_outcome(outcome, beside, ends_run),
        }
    }

    /// The outcomes of calls that were not run, which are made durable before the next service call:
    /// an attempt with other tools must not run them after all.
    pub(super) fn of_calls_not_run(&self, outcomes: Vec<ToolOutcome>) -> Vec<ToolOutcome> {
        match self {
            Self::PerRun(_) | Self::PerServiceCall(_) => Vec::new(),
            Self::Journaled(run) => run.of_this_run(outcomes),
        }
    }

    /// How the run is closed with its last write.
    pub(super) fn close(&self) -> Option<Close> {
        matches!(self, Self::Journaled(_)).then_some(Close::Commit)
    }
}
