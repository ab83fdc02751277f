//! How a run ends in per-run mode: one append of everything.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ConversationId, EndedBy, Message, Part, Role,
    store::{Slot, StoreError},
};

use super::{
    Run, State, run_end::response_at_end, service_call::ToStore, service_id::Adopted,
    submission::FailedSubmission,
};
use crate::PersistenceError;

/// A run that is written at its end.
pub(crate) struct OpenRun {
    run: Run,
    input: Vec<Arc<Message>>,
    slot: Result<Slot, StoreError>,
}

impl OpenRun {
    /// With the place in the store's queue that it holds from before the model is paid.
    pub(crate) fn new(run: Run, input: Vec<Arc<Message>>, slot: Result<Slot, StoreError>) -> Self {
        Self { run, input, slot }
    }

    /// The run has its final answer: appends input and answer, and waits until they are durable.
    ///
    /// The submission is made before the first await, so dropping the returned future loses
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the answer's conversation id does not fit, by policy, with nothing written; or
    /// [`PersistenceError::NotStored`]. Both carry the answer.
    pub(crate) async fn complete(self, mut answer: Answer) -> Result<Answer, PersistenceError> {
        let Self { run, input, slot } = self;
        let mut submission = {
            let mut state = run.state();
            let adopted = run.adopt_at_end(&state, &answer)?;
            answer.messages = run.number(state.answer_from, std::mem::take(&mut answer.messages));
            if let Err(refused) = state.recorder.keep_pending_calls(&answer.messages) {
                return Err(run.pending_call_not_kept(refused, answer));
            }
            let mut messages = input;
            messages.extend(answer.messages.iter().cloned());
            let is_stopped = answer.finish.ended_by == Some(EndedBy::Stop);
            let mut left_out = if is_stopped || run.policy().keep_trailing_results {
                state.mark_trailing_results(&mut messages);
                Vec::new()
            } else {
                take_trailing_results(&mut messages)
            };
            mark_results(&mut left_out);
            let adopted = Some(adopted);
            let to_store = ToStore {
                messages,
                left_out,
                adopted,
                is_whole_run: true,
                ends_run: true,
                ..ToStore::default()
            };
            run.submit(&mut state, slot, to_store).0
        };
        match submission.outcome().await {
            Ok(unsaved) => {
                run.state().unsaved = unsaved;
                Ok(answer)
            }
            Err(failed) => Err(run.not_stored(failed, Some(answer))),
        }
    }
}

impl Run {
    /// A run whose service calls are stored below the tool loop has its final answer: results at
    /// its end, which no service call has seen, go into the record alone. That they could not be
    /// stored is logged and no more, since everything the model was paid for is.
    ///
    /// `before` of the answer's messages are of an earlier attempt.
    pub(crate) async fn record_left_out(&self, answer: &[Arc<Message>], before: usize) {
        let mut submission = {
            let mut state = self.state();
            let mut left_out = self.not_taken(&state, answer);
            let ends_run = state.has_unmarked_end();
            if left_out.is_empty() && !ends_run {
                return;
            }
            mark_results(&mut left_out);
            let slot = Ok(Slot::unbounded());
            let last_response = last_response(answer, before);
            let to_store = ToStore { left_out, ends_run, last_response, ..ToStore::default() };
            self.submit(&mut state, slot, to_store).0
        };
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::error!(
                conversation = %self.key(),
                error = &source as &dyn std::error::Error,
                "tool results at the end of a run could not be recorded"
            );
        }
    }
}

impl Run {
    /// What the end of a run means for where its history is kept. Where each answer was compared
    /// as it came, a loop above may have left the id out of what it returns.
    fn adopt_at_end(&self, state: &State, answer: &Answer) -> Result<Adopted, PersistenceError> {
        let recording = state.recording;
        let returned = answer.finish.conversation_id.as_ref().and_then(ConversationId::service_id);
        match (&state.service_id, returned) {
            (Some(service_id), None) if state.checks_each_answer => {
                Ok(Adopted::named(service_id.clone(), recording))
            }
            (current, _) => {
                let whole = || answer.clone();
                self.adopt_service_id(current.as_ref(), recording, &answer.finish, whole)
            }
        }
    }

    /// The results at the end of an answer that no service call has carried.
    pub(super) fn not_taken(&self, state: &State, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let is_taken = |message: &Arc<Message>| {
            let index = message.id.filter(|id| id.run == self.id()).map(|id| id.index);
            index.is_none_or(|index| (index as usize) < state.taken)
        };
        let trailing = answer.iter().rev().take_while(|message| is_results(message));
        let mut results: Vec<_> = trailing.filter(|message| !is_taken(message)).cloned().collect();
        results.reverse();
        results
    }
}

/// Takes out the results at the end that answer calls of this run: no service call has seen them,
/// and per-service-call persistence would not have stored them either.
///
/// Results of approved calls stay: their calls were stored by an earlier run, and would wait for
/// approval again.
pub(super) fn take_trailing_results(messages: &mut Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let trailing = messages.iter().rev().take_while(|message| is_results(message)).count();
    let kept = messages.len() - trailing;
    let is_answer = |message: &&Arc<Message>| message.role == Role::Assistant;
    let mut answer = messages.get(..kept).unwrap_or_default().iter().rev().take_while(is_answer);
    if answer.any(|message| message.calls().next().is_some()) {
        messages.split_off(kept)
    } else {
        Vec::new()
    }
}

/// The messages of the model with which an answer ends, apart from those of an earlier attempt.
pub(super) fn last_response(answer: &[Arc<Message>], before: usize) -> Vec<Arc<Message>> {
    response_at_end(answer.get(before..).unwrap_or_default()).to_vec()
}

/// Says in results that their run ended with them, which those of a foreign tool loop do not say.
pub(super) fn mark_results(messages: &mut [Arc<Message>]) {
    for message in messages {
        if message.results().any(|result| result.ends_run) {
            continue;
        }
        for part in &mut Arc::make_mut(message).parts {
            if let Part::ToolResult(result) = part {
                result.ends_run = true;
            }
        }
    }
}

fn is_results(message: &Arc<Message>) -> bool {
    message.role == Role::Tool
}

impl State {
    /// Says in the results at the end of a run that it ended with them, if its tools made them.
    pub(super) fn mark_trailing_results(&self, messages: &mut [Arc<Message>]) {
        let is_of_tools = |message: &Arc<Message>| {
            message.id.is_some_and(|id| self.recorder.reports(id).is_some())
        };
        let last = messages.iter().rev();
        let count = last.take_while(|it| is_results(it) && is_of_tools(it)).count();
        let first = messages.len() - count;
        mark_results(messages.get_mut(first..).unwrap_or_default());
    }
}
