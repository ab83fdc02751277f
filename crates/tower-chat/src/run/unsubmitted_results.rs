//! Results of tools whose next service call is never made.

use std::sync::{Arc, atomic::Ordering};

use tower_chat_core::{
    Message,
    store::{Slot, StoreError},
};

use super::{Run, State, Submission, service_call::ToStore};
use crate::{
    UnansweredInputs,
    tool::{ToolOutcome, ToolReport},
};

impl Run {
    /// How many messages at the end of a service call have not become part of the run; `None` if
    /// no persister has seen the call.
    pub(crate) fn left_of_call(&self, ordinal: u32) -> Option<usize> {
        let state = self.state();
        if state.refused == Some(ordinal) {
            return Some(usize::MAX);
        }
        state.last_call.as_ref()?.left_of(ordinal)
    }

    /// Whether a service call of the run has its answer, stored or on the way into the store.
    pub(crate) fn has_answer(&self, ordinal: u32) -> bool {
        self.state().last_call.as_ref().is_some_and(|last| last.has_answer(ordinal))
    }

    /// Whether results of tools are stored although the service call that carries them fails.
    pub(crate) fn keeps_results_of_failed_call(&self) -> bool {
        self.policy().inputs_of_failed_call != UnansweredInputs::None
    }

    /// Submits what a tool loop had ready for a service call that it will not make: the results
    /// of tools that have run, and before the first call the input too.
    ///
    /// A submission, so that it can be made where nothing can be awaited. Only for a run whose
    /// persister is below the loop; it does nothing where that was missed, since then nobody has
    /// stored the calls.
    pub(crate) fn submit_results(&self, messages: Vec<Arc<Message>>) {
        if self.0.persister_missed.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        let messages = self.number(state.taken, messages);
        if messages.is_empty() {
            return;
        }
        let slot = Ok(Slot::unbounded().without_blocking());
        let submission = self.submit(&mut state, slot, ToStore::messages(messages.clone())).0;
        messages.iter().for_each(|message| state.replay.push(message));
        drop(state);
        drop(submission);
    }

    /// Submits the results that a refused service call has carried to the record alone: their tools
    /// have run, but the history goes on without the call. A journal has them already, one by one.
    pub(super) fn record_results(
        &self,
        state: &mut State,
        slot: Result<Slot, StoreError>,
        inputs: &[Arc<Message>],
    ) -> Submission {
        if self.is_journaled() || !self.keeps_results_of_failed_call() {
            return Submission::nothing();
        }
        let outcomes = state.outcomes_in(inputs);
        if outcomes.is_empty() {
            return Submission::nothing();
        }
        let (submission, write) =
            self.submit(state, slot, ToStore { outcomes, ..ToStore::default() });
        state.unsettled.extend(write);
        submission
    }
}

impl State {
    /// What came out of the calls that results in these messages answer, apart from calls that wait
    /// for approval: the tool loop records those when their tools finish, under their claims.
    fn outcomes_in(&self, inputs: &[Arc<Message>]) -> Vec<ToolOutcome> {
        if inputs.iter().all(|message| message.results().next().is_none()) {
            return Vec::new();
        }
        let answered = self.replay.clone().push_answering(inputs);
        let mut outcomes = Vec::new();
        for (message, asked) in inputs.iter().zip(answered) {
            let mut reports =
                message.id.and_then(|id| self.recorder.reports(id)).into_iter().flatten();
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
