//! The script of one conversation: the recording, and the position in it. The model client and the
//! tools share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tower_chat::{ChatRequest, Message, ToolCall};

use super::{
    counters::Counters,
    divergence::{Difference, Divergence},
    plan::{Calls, Plan, PlannedAnswer},
    recording::{RecordedMessage, Recording},
    verification::Verification,
};

#[derive(Clone)]
pub(super) struct Script(Arc<Shared>);

struct Shared {
    recording: Recording,
    answers: Vec<PlannedAnswer>,
    verifies: bool,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of answers that were returned.
    given: usize,
    /// The total number of answers that may have been returned when the run ends.
    allowed: usize,
    /// Whether the model was called more often than in the recording.
    is_overrun: bool,
    /// Whether the tools of the last answer run again, because an earlier play was interrupted
    /// there.
    resumes_with_tools: bool,
    verification: Verification,
}

/// The error of a service call without a recorded answer.
#[derive(Debug, thiserror::Error)]
#[error("the recording of conversation {conversation:?} has no further answer for this run")]
pub(super) struct NoFurtherAnswer {
    conversation: String,
}

#[derive(Debug, thiserror::Error)]
#[error("no result is recorded for call {position} of the batch")]
pub(super) struct NoRecordedResult {
    position: usize,
}

impl Script {
    pub(super) fn new(
        recording: &Recording,
        plan: &Plan,
        verifies: bool,
        counters: &Arc<Counters>,
    ) -> Self {
        Self(Arc::new(Shared {
            recording: recording.clone(),
            answers: plan.runs.iter().flat_map(|run| run.answers.iter().cloned()).collect(),
            verifies,
            counters: counters.clone(),
            state: Mutex::default(),
        }))
    }

    /// Begins a run with this number of recorded answers.
    pub(super) fn begin_run(&self, answers: usize) {
        self.0.counters.count_run();
        let mut state = self.state();
        state.allowed = state.given + answers;
    }

    /// Marks the first answer of the run as already returned. An earlier play stored this answer
    /// and was interrupted while its tools ran. The tools run again.
    pub(super) fn resume_with_tools(&self) {
        let mut state = self.state();
        state.given += 1;
        state.resumes_with_tools = true;
    }

    /// Returns whether the run has made exactly the recorded service calls. Adds a divergence for a
    /// missing call.
    pub(super) fn ended_as_recorded(&self) -> bool {
        let state = self.state();
        if state.given < state.allowed {
            let (call, missing) = (state.given, self.0.answers.get(state.given));
            let message = missing.map_or(0, |answer| answer.message);
            drop(state);
            self.diverged(call, message, Difference::MissingServiceCall);
            return false;
        }
        !state.is_overrun
    }

    /// Returns whether the model was called more often than in the recording.
    pub(super) fn is_overrun(&self) -> bool {
        self.state().is_overrun
    }

    /// Compares a request with the recording, and returns the recorded answer.
    pub(super) fn answer(&self, request: &ChatRequest) -> Result<Arc<Message>, NoFurtherAnswer> {
        self.0.counters.count_service_call();
        let mut state = self.state();
        let call = state.given;
        let answer = self.0.answers.get(call).filter(|_| call < state.allowed);
        let Some((answer, recorded)) = answer.and_then(|answer| {
            Some((answer, self.recorded().get(answer.message)?.message.clone()))
        }) else {
            state.is_overrun = true;
            drop(state);
            self.diverged(call, request.messages().len(), Difference::ExtraServiceCall);
            return Err(NoFurtherAnswer { conversation: self.0.recording.id().to_owned() });
        };
        state.given += 1;
        if self.0.verifies {
            let position = answer.message;
            let found = state.verification.check(self.recorded(), position, request.messages());
            drop(state);
            for (message, difference) in found {
                self.diverged(call, message, difference);
            }
        }
        Ok(recorded)
    }

    /// Returns the message of the next answer, or of the answer whose tools run again, and whether
    /// the tools of the answer run.
    pub(super) fn next_calls(&self) -> Option<(Arc<Message>, bool)> {
        let position = {
            let mut state = self.state();
            let resumes_with_tools = std::mem::take(&mut state.resumes_with_tools);
            if resumes_with_tools { state.given.checked_sub(1)? } else { state.given }
        };
        let answer = self.0.answers.get(position)?;
        let message = self.recorded().get(answer.message)?.message.clone();
        Some((message, matches!(answer.calls, Calls::Run { .. })))
    }

    /// Returns the recorded result of a call of the last answer, and whether the tool ends the run.
    pub(super) fn result(
        &self,
        position: usize,
        call: &ToolCall,
    ) -> Result<(Arc<Message>, bool), NoRecordedResult> {
        self.0.counters.count_tool_execution();
        let service_call = self.state().given.saturating_sub(1);
        let answer = self.0.answers.get(service_call).ok_or(NoRecordedResult { position })?;
        let Calls::Run { results, terminate } = &answer.calls else {
            return Err(NoRecordedResult { position });
        };
        let recorded_call = self.recorded().get(answer.message);
        let recorded_call = recorded_call.and_then(|asking| asking.message.calls().nth(position));
        let is_recorded = |recorded: &&ToolCall| {
            recorded.name == call.name && recorded.arguments == call.arguments
        };
        if self.0.verifies && recorded_call.filter(is_recorded).is_none() {
            let text = |call: &ToolCall| format!("{} {:?}", call.name, call.arguments);
            let expected = recorded_call.map_or_else(|| "no call".to_owned(), text);
            let difference = Difference::ToolCall { expected, found: text(call) };
            self.diverged(service_call, answer.message, difference);
        }
        let at = results.start + position;
        let result = results.contains(&at).then(|| self.recorded().get(at)).flatten();
        let result = result.ok_or(NoRecordedResult { position })?.message.clone();
        Ok((result, *terminate && at + 1 == results.end))
    }

    fn diverged(&self, service_call: usize, message: usize, difference: Difference) {
        self.0.counters.diverged(Divergence {
            conversation: self.0.recording.id().to_owned(),
            service_call: Some(service_call),
            message,
            difference,
        });
    }

    fn recorded(&self) -> &[RecordedMessage] {
        self.0.recording.messages()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(counters: &Arc<Counters>) -> Script {
        let recording = Recording::read(
            r#"{"id": "x", "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "found"},
                {"role": "assistant", "content": "There."}]}"#,
        )
        .unwrap();
        let plan = Plan::new(recording.messages(), 0);
        Script::new(&recording, &plan, true, counters)
    }

    fn found(counters: &Counters) -> Vec<(Option<usize>, usize, Difference)> {
        let divergences = counters.take_divergences().into_iter();
        divergences.map(|found| (found.service_call, found.message, found.difference)).collect()
    }

    #[test]
    fn a_run_with_an_additional_service_call_diverges() {
        let counters = Arc::default();
        let script = script(&counters);
        script.begin_run(1);
        assert!(script.answer(&ChatRequest::user("go")).is_ok());
        assert!(script.answer(&ChatRequest::user("go")).is_err());
        assert!(script.is_overrun() && !script.ended_as_recorded());
        assert_eq!(found(&counters), [(Some(1), 1, Difference::ExtraServiceCall)]);
    }

    #[test]
    fn a_run_with_a_missing_service_call_diverges() {
        let counters = Arc::default();
        let script = script(&counters);
        script.begin_run(2);
        assert!(script.answer(&ChatRequest::user("go")).is_ok());
        assert!(!script.ended_as_recorded());
        assert_eq!(found(&counters), [(Some(1), 3, Difference::MissingServiceCall)]);
    }

    #[test]
    fn a_tool_call_that_differs_from_the_recorded_call_diverges() {
        let counters = Arc::default();
        let script = script(&counters);
        script.begin_run(2);
        assert!(script.answer(&ChatRequest::user("go")).is_ok());
        assert!(script.result(0, &ToolCall::new("1", "look", "{}")).is_ok());
        assert_eq!(found(&counters), []);
        assert!(script.result(0, &ToolCall::new("1", "look", "{ }")).is_ok());
        let difference = Difference::ToolCall {
            expected: "look \"{}\"".to_owned(),
            found: "look \"{ }\"".to_owned(),
        };
        assert_eq!(found(&counters), [(Some(0), 1, difference)]);
        assert!(script.result(1, &ToolCall::new("1", "look", "{}")).is_err());
    }
}
