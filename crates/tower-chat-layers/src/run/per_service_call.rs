//! Per-service-call mode: each answered call is appended with what was new in it.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    Message, Role, ToolStatus,
    store::{StoreError, author::Slot},
};

use super::{
    Run, State, Submission,
    last_call::Attempt,
    partial_text::partial_message,
    service_call::{OpenCall, Unanswered},
    state::ModeState,
    submission::FailedSubmission,
    trailing_results::{last_response, mark_results},
    write::RunWrite,
};
use crate::{
    UnansweredInputs,
    tool::{CallOfRun, ToolOutcome, ToolReport},
};

/// A run of which each service call is stored by itself. What an answered call adds is common to
/// this mode and the journaled one: [`OpenCall::complete`].
pub(super) struct PerServiceCall<'r>(pub(super) &'r Run);

/// What is kept of a service call that came to no answer, for when its run goes: a retry below the
/// tool loop may still have one.
#[derive(Debug)]
pub(super) struct PartialResponse {
    /// Those of its inputs that were not submitted.
    rest: Vec<Arc<Message>>,
    text: Arc<str>,
}

impl PerServiceCall<'_> {
    /// A service call has failed: submits what is kept of its inputs.
    pub(super) fn call_failed(
        &self,
        call: &mut OpenCall,
        slot: Result<Slot, StoreError>,
        kept: UnansweredInputs,
    ) -> Submission {
        let count = kept.count(self.0, call.inputs());
        self.submit_inputs(call, slot, count)
    }

    /// A service call was dropped: submits what the policy keeps of its inputs. Nothing can be
    /// awaited here, so the store's own task does it.
    pub(super) fn call_cancelled(&self, call: &mut OpenCall, slot: Result<Slot, StoreError>) {
        let count = self.0.policy().inputs_of_dropped_call.count(self.0, call.inputs());
        drop(self.submit_inputs(call, slot.map(Slot::without_blocking), count));
    }

    /// Submits the first `count` inputs of a call that came to no answer.
    fn submit_inputs(
        &self,
        call: &mut OpenCall,
        slot: Result<Slot, StoreError>,
        count: usize,
    ) -> Submission {
        let mut state = self.0.state();
        let Some(Unanswered { mut inputs, text }) = call.take_unanswered(&state) else {
            return Submission::nothing();
        };
        let rest = inputs.split_off(count.min(inputs.len()));
        call.leave_out_taken(&state, &mut inputs);
        state.keep_partial_response(text, &rest);
        state.calls.keep(call.ordinal(), Attempt::Unanswered { rest });
        if inputs.is_empty() {
            return Submission::nothing();
        }
        let write = RunWrite::messages(inputs.clone());
        let (submission, write) = self.0.submit(&mut state, slot, write);
        state.unsettled.extend(write);
        inputs.iter().for_each(|message| state.conversation.replay.push(message));
        submission
    }

    /// Tools were dropped while they ran. A call that waited for approval has a claim that says so.
    pub(super) fn note_interrupted(&self, calls: Vec<(CallOfRun, SystemTime)>) {
        let mut state = self.0.state();
        if state.is_persister_missed {
            return;
        }
        let of_run = calls.into_iter().filter(|(call, _)| call.0.run == self.0.id());
        let rows = of_run.filter_map(|(call, started_at)| {
            let mut row = state.call_row(call)?;
            row.status = ToolStatus::Interrupted;
            row.started_at = Some(started_at);
            Some(row)
        });
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            let submission = self.0.submit_rows(&mut state, rows, Vec::new());
            drop(state);
            drop(submission);
        }
    }

    /// An answer was refused: the results that its call has carried go into the record alone.
    pub(super) fn results_refused(
        &self,
        state: &mut State,
        slot: Result<Slot, StoreError>,
        inputs: &[Arc<Message>],
    ) -> Submission {
        if !self.0.keeps_results_of_failed_call() {
            return Submission::nothing();
        }
        let outcomes = state.outcomes_in(inputs);
        if outcomes.is_empty() {
            return Submission::nothing();
        }
        let write = RunWrite { outcomes, ..RunWrite::default() };
        let (submission, write) = self.0.submit(state, slot, write);
        state.unsettled.extend(write);
        submission
    }

    /// The run has its final answer: results at its end, which no service call has seen, go into the
    /// record alone. That they could not be stored is logged and no more, since everything the model
    /// was paid for is.
    pub(super) async fn finish(&self, answer: &[Arc<Message>], before: usize) {
        let mut submission = {
            let mut state = self.0.state();
            let mut left_out = self.0.not_taken(&state, answer);
            let ends_run = state.has_unmarked_end();
            if left_out.is_empty() && !ends_run {
                return;
            }
            mark_results(&mut left_out);
            let last_response = last_response(answer, before);
            let write = RunWrite { left_out, ends_run, last_response, ..RunWrite::default() };
            self.0.submit(&mut state, Ok(Slot::unbounded()), write).0
        };
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::error!(
                conversation = %self.0.key(),
                error = &source as &dyn std::error::Error,
                "tool results at the end of a run could not be recorded"
            );
        }
    }

    /// The run is over for its caller: what is kept of a call without an answer is stored, after
    /// what the model was asked.
    pub(super) fn leave(&self) {
        let mut state = self.0.state();
        let Some(PartialResponse { rest: mut messages, text }) = state.take_partial_response()
        else {
            return;
        };
        messages.push(Arc::new(partial_message(&text)));
        let messages = self.0.number(state.conversation.taken, messages);
        let slot = Ok(Slot::unbounded().without_blocking());
        let submission = self.0.submit(&mut state, slot, RunWrite::messages(messages)).0;
        drop(state);
        drop(submission);
    }
}

impl UnansweredInputs {
    /// How many of a call's inputs are stored, from the first. What a tool has queued comes with
    /// its result.
    fn count(self, run: &Run, inputs: &[Arc<Message>]) -> usize {
        let is_queued = |message: &Message| message.id.is_some_and(|id| run.is_queued_by_tool(id));
        let is_result = |message: &Arc<Message>| message.role == Role::Tool || is_queued(message);
        match self {
            Self::All => inputs.len(),
            Self::Results => inputs.iter().rposition(is_result).map_or(0, |last| last + 1),
            Self::None => 0,
        }
    }
}

impl Run {
    /// How many messages at the end of a service call have not become part of the run; `None` if
    /// no persister has seen the call.
    pub(crate) fn left_of_call(&self, ordinal: u32) -> Option<usize> {
        let state = self.state();
        if state.calls.refused == Some(ordinal) {
            return Some(usize::MAX);
        }
        state.calls.last.as_ref()?.left_of(ordinal)
    }

    /// Whether a service call of the run has its answer, stored or on the way into the store.
    pub(crate) fn has_answer(&self, ordinal: u32) -> bool {
        self.state().calls.last.as_ref().is_some_and(|last| last.has_answer(ordinal))
    }

    /// Whether results of tools are stored although the service call that carries them fails.
    pub(crate) fn keeps_results_of_failed_call(&self) -> bool {
        self.policy().inputs_of_failed_call != UnansweredInputs::None
    }

    /// Submits messages that no service call will carry. Nothing where the persister was missed,
    /// since then nobody has stored the calls.
    pub(super) fn submit_messages(&self, messages: Vec<Arc<Message>>) {
        let mut state = self.state();
        if state.is_persister_missed {
            return;
        }
        let messages = self.number(state.conversation.taken, messages);
        if messages.is_empty() {
            return;
        }
        let slot = Ok(Slot::unbounded().without_blocking());
        let submission = self.submit(&mut state, slot, RunWrite::messages(messages.clone())).0;
        messages.iter().for_each(|message| state.conversation.replay.push(message));
        drop(state);
        drop(submission);
    }
}

impl State {
    /// A service call was cut off after this text.
    fn keep_partial_response(&mut self, text: Option<Arc<str>>, rest: &[Arc<Message>]) {
        let text = text.or_else(|| self.take_partial_response().map(|earlier| earlier.text));
        if let ModeState::PerServiceCall(partial) = &mut self.of_mode {
            *partial = text.map(|text| PartialResponse { rest: rest.to_vec(), text });
        }
    }

    fn take_partial_response(&mut self) -> Option<PartialResponse> {
        match &mut self.of_mode {
            ModeState::PerServiceCall(partial) => partial.take(),
            ModeState::PerRun(_) | ModeState::Journaled(_) => None,
        }
    }

    /// What came out of the calls that results in these messages answer, apart from calls that wait
    /// for approval: the tool loop records those when their tools finish, under their claims.
    fn outcomes_in(&self, inputs: &[Arc<Message>]) -> Vec<ToolOutcome> {
        if inputs.iter().all(|message| message.results().next().is_none()) {
            return Vec::new();
        }
        let answered = self.conversation.replay.clone().push_answering(inputs);
        let mut outcomes = Vec::new();
        for (message, asked) in inputs.iter().zip(answered) {
            let reports = message.id.and_then(|id| self.call_records.reports(id));
            let mut reports = reports.into_iter().flatten();
            for (result, asked) in message.results().zip(asked) {
                let report = reports.next().cloned();
                let Some(asked) = asked.filter(|asked| !asked.needed_approval) else { continue };
                let report = report.unwrap_or_else(|| ToolReport::of(result));
                outcomes.push((asked.call_position, result.clone(), report));
            }
        }
        outcomes
    }
}
