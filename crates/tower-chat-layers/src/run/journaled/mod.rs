//! Journaled mode: everything is staged as it happens, and becomes part of the history at the end of
//! the run by one commit.

mod compaction;
mod interrupted;
mod journal;
mod lease;

use std::sync::Arc;

use tower_chat_core::{
    Answer, Message, Role,
    store::{
        Lease, StoreError,
        author::{Close, Slot, Write},
    },
};

pub(crate) use self::interrupted::InterruptedRun;
pub(super) use self::{interrupted::input_of, journal::Journal};
use super::{
    Run, State, Submission, answers_approvals,
    last_call::Attempt,
    missing_results::missing_results,
    partial_text::partial_message,
    recorder::LeaveCause,
    service_call::{OpenCall, Unanswered},
    submission::FailedSubmission,
    trailing_results::{last_response, mark_results, take_trailing_results},
    write::RunWrite,
};
use crate::{
    PersistenceError, StoreFailure,
    policy::{OnDisconnect, RunEnd, UnknownCalls},
    recovery::{OfPriorCalls, of_prior_calls},
    tool::{CallOfRun, ToolOutcome},
};

/// A run that is staged as it goes. What an answered call adds is common to this mode and the
/// per-service-call one: [`OpenCall::complete`].
pub(super) struct Journaled<'r>(pub(super) &'r Run);

impl Journaled<'_> {
    /// The run begins: stages its input, before the model is paid.
    pub(super) async fn begin_input(
        &self,
        slot: Result<Slot, StoreError>,
        input: Vec<Arc<Message>>,
    ) -> Result<(), PersistenceError> {
        if input.is_empty() {
            return Ok(());
        }
        let submission = {
            let mut state = self.0.state();
            let submission = self.0.submit(&mut state, slot, RunWrite::messages(input.clone())).0;
            input.iter().for_each(|message| state.conversation.replay.push(message));
            submission
        };
        self.0.settled(submission).await
    }

    /// A service call has failed or was dropped: everything worth keeping is staged, so that a retry
    /// finds its inputs here. The next write, which leaves the run, keeps the text that was streamed.
    pub(super) fn call_unanswered(&self, call: &mut OpenCall) {
        let mut state = self.0.state();
        let Some(Unanswered { inputs: rest, text }) = call.take_unanswered(&state) else { return };
        if let (Some(journal), Some(text)) = (state.of_mode.journal_mut(), text) {
            journal.keep_partial_text(text);
        }
        if state.calls.attempt(call.ordinal()).is_none() {
            state.calls.keep(call.ordinal(), Attempt::Unanswered { rest });
        }
    }

    /// A tool has finished. Where it has ended the run, the commit rides on the same write, since
    /// nothing else would tell a later attempt that it was the end; `beside` are the outcomes of
    /// calls of the round that were not run, which are staged with the first outcome.
    pub(super) fn with_outcome(
        &self,
        outcome: ToolOutcome,
        beside: Vec<ToolOutcome>,
        ends_run: bool,
    ) -> RunWrite {
        let (call, ..) = outcome;
        // Results that are kept come with their message, and those of approved calls always.
        let is_left_out = call.0.run == self.0.id() && !self.0.policy().keep_trailing_results;
        let ends_run = ends_run && is_left_out;
        let outcomes = self.of_this_run(beside).into_iter().chain([outcome]).collect();
        let close = ends_run.then_some(Close::Commit);
        RunWrite { outcomes, close, ends_run, ..RunWrite::default() }
    }

    /// Those of the outcomes that are staged: an approved call of an earlier run that was not run
    /// goes on waiting, as in the other modes.
    pub(super) fn of_this_run(&self, mut outcomes: Vec<ToolOutcome>) -> Vec<ToolOutcome> {
        outcomes.retain(|(call, ..)| call.0.run == self.0.id());
        outcomes
    }

    /// The run has its final answer: everything staged becomes part of the history, if that has
    /// not happened with the answer itself. Results at its end that no service call has seen are in
    /// the record alone, unless the policy keeps them.
    ///
    /// `before` of the answer's messages are of an earlier attempt.
    pub(super) async fn finish(
        &self,
        answer: &Answer,
        before: usize,
    ) -> Result<(), PersistenceError> {
        let run = self.0;
        let mut submission = {
            let mut state = run.state();
            if !state.of_mode.journal().is_some_and(Journal::is_open) {
                return Ok(());
            }
            let mut messages = run.not_taken(&state, &answer.messages);
            let mut left_out = Vec::new();
            if !run.policy().keep_trailing_results {
                let added = &state.conversation.added;
                let stored = added.len();
                let mut all: Vec<_> = added.iter().chain(&messages).cloned().collect();
                left_out = take_trailing_results(&mut all);
                messages = all.split_off(stored.min(all.len()));
            }
            mark_results(&mut left_out);
            let write = RunWrite {
                messages,
                left_out,
                close: Some(Close::Commit),
                ends_run: true,
                last_response: last_response(&answer.messages, before),
                ..RunWrite::default()
            };
            run.submit(&mut state, Ok(Slot::unbounded()), write).0
        };
        let outcome = submission.outcome().await;
        outcome.map(drop).map_err(|failed| run.not_stored(failed, Some(answer.clone())))
    }

    /// Takes back what is staged, if that is no more than the run's input. Left open, the run would
    /// be resumed before every later request, and refused again. Outcomes of calls of earlier runs
    /// stay in the record.
    ///
    /// That it could not be taken back is logged and no more: the refusal matters to the caller.
    pub(super) async fn discard_input(&self) {
        let mut submission = {
            let mut state = self.0.state();
            let has_answer = state.conversation.has_answers();
            let visible = match state.of_mode.journal() {
                Some(journal) if journal.is_open() && !has_answer => journal.visible,
                Some(_) | None => return,
            };
            let close = Some(Close::Discard { visible });
            let write = RunWrite { close, ..RunWrite::default() };
            self.0.submit(&mut state, Ok(Slot::unbounded()), write).0
        };
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::warn!(
                conversation = %self.0.key(),
                error = &source as &dyn std::error::Error,
                "the input of a refused run could not be taken back, the run is open"
            );
        }
    }

    /// The run is over for its caller: notes that nobody works on it any more, so that it can be
    /// taken up at once, or ends it by the policy if its caller is gone.
    pub(super) fn leave(&self, cause: LeaveCause) {
        let until = match (cause, self.0.policy().journal.on_disconnect) {
            (LeaveCause::Failed, _) => None,
            (LeaveCause::Disconnected, OnDisconnect::LeaveOpen) => Some(Lease::ABANDONED),
            // The results of approved calls are in the record, which cannot be read here: the next
            // run commits it.
            (LeaveCause::Disconnected, OnDisconnect::Commit) if self.has_open_decisions() => {
                Some(Lease::ABANDONED)
            }
            (LeaveCause::Disconnected, OnDisconnect::Commit) => {
                return drop(self.submit_end(RunEnd::Commit, OfPriorCalls::default()));
            }
            (LeaveCause::Disconnected, OnDisconnect::Discard) => {
                return drop(self.submit_end(RunEnd::Discard, OfPriorCalls::default()));
            }
        };
        drop(self.stage_lease(None, |journal| journal.leave_until(until)));
    }

    /// Whether the run has staged decisions about approvals, and nothing that they have led to.
    fn has_open_decisions(&self) -> bool {
        let state = self.0.state();
        let is_input = |message: &&Arc<Message>| message.role == Role::User;
        let last = state.conversation.added.iter().rev().take_while(is_input);
        answers_approvals(last)
    }

    /// The number of this attempt at the run, if the run is open and the model has answered nothing
    /// in any attempt.
    pub(super) fn unanswered_attempt(&self) -> Option<u32> {
        let state = self.0.state();
        let journal = state.of_mode.journal().filter(|journal| journal.is_open());
        journal.filter(|_| !state.conversation.has_answers()).map(Journal::attempt)
    }

    /// Ends the run where it stands, if it is open. That it could not be ended is logged: the caller
    /// has an error to report already.
    pub(super) async fn end(&self, end: RunEnd) {
        if let Err(source) = self.try_end(end).await {
            tracing::error!(
                conversation = %self.0.key(),
                error = &source as &dyn std::error::Error,
                "a run that was refused could not be ended: it stays open"
            );
        }
    }

    async fn try_end(&self, end: RunEnd) -> Result<(), StoreError> {
        let of_prior_calls = match end {
            RunEnd::Commit => self.of_prior_calls().await?,
            RunEnd::Discard => OfPriorCalls::default(),
        };
        let mut submission = self.submit_end(end, of_prior_calls);
        submission.outcome().await.map_err(|FailedSubmission { source, .. }| source)?;
        Ok(())
    }

    async fn of_prior_calls(&self) -> Result<OfPriorCalls, StoreError> {
        let (store, key) = (self.0.store().as_ref(), self.0.key());
        match store.open_run(key).await? {
            Some(content) if content.open.run == self.0.id() => {
                of_prior_calls(store, key, &content.messages).await
            }
            Some(_) | None => Ok(OfPriorCalls::default()),
        }
    }

    /// Submits the write that ends the run where it stands, if it is open.
    fn submit_end(&self, end: RunEnd, of_prior_calls: OfPriorCalls) -> Submission {
        let run = self.0;
        let mut state = run.state();
        // It is taken here alone: nothing is submitted of the run after its end.
        let activity = run.activity(&mut state, true);
        let State { of_mode, conversation, call_records, refused, .. } = &mut *state;
        let Some(journal) = of_mode.journal_mut().filter(|journal| journal.is_open()) else {
            return Submission::nothing();
        };
        let mut messages = Vec::new();
        let (close, rows) = match end {
            RunEnd::Discard => (Close::Discard { visible: journal.visible }, Vec::new()),
            RunEnd::Commit => {
                let id_of = |sequence: u64| {
                    let of_attempt = call_records.id_at(sequence);
                    of_attempt.or_else(|| conversation.message_at(sequence)?.id)
                };
                let next = conversation.revision.sequence + 1;
                let (results, mut rows) = missing_results(journal.unanswered(), next, id_of);
                messages.extend(results.into_iter().map(Arc::new));
                messages.extend(of_prior_calls.messages);
                rows.extend(of_prior_calls.rows);
                let text = journal.partial_text();
                messages.extend(text.map(|text| Arc::new(partial_message(&text))));
                messages.extend(refused.as_message().map(Arc::new));
                (Close::Commit, rows)
            }
        };
        let id = conversation.next_id(run.id());
        let write = Write::new(run.key().clone(), id, conversation.revision, messages)
            .with_activity(activity);
        let write = journal.stage(write, rows, Some(close), None);
        conversation.revision = write.result();
        let slot = Ok(Slot::unbounded().without_blocking());
        Submission::submit(run.store(), StoreFailure::FailCall, slot, vec![write])
    }
}

impl Run {
    /// Whether an open run was taken up that an earlier attempt has left.
    pub(crate) fn is_resumed(&self) -> bool {
        self.state().of_mode.journal().is_some_and(|journal| journal.attempt() > 1)
    }

    /// The position by which every attempt knows a call: a hook may have kept calls before it out of
    /// the journal. `None` for a call that was kept out itself; no other attempt knows of that one.
    pub(crate) fn position_across_attempts(
        &self,
        (message, index): CallOfRun,
    ) -> Option<CallOfRun> {
        if !self.records_each_outcome() {
            return Some((message, index));
        }
        let stored = self.state().stored_position((message, index))?;
        Some((message, stored.call.index as usize))
    }

    /// What becomes of calls that may or may not have run.
    pub(crate) fn unknown_calls(&self) -> UnknownCalls {
        self.policy().journal.unknown_calls.clone()
    }
}
