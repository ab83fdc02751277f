//! How a run ends in per-run mode: one append of everything.

use std::sync::Arc;

use tower_chat_core::{
    Answer, Message, Role,
    store::{Slot, StoreError},
};

use super::Run;
use crate::PersistenceError;

/// A run that is written at its end.
pub(crate) struct OpenRun {
    run: Run,
    input: Vec<Arc<Message>>,
    slot: Result<Slot, StoreError>,
}

impl OpenRun {
    /// Waits for a place in the store's queue, before the model is paid.
    ///
    /// # Errors
    ///
    /// If the store takes no more writes and the policy is to fail.
    pub(crate) async fn reserve(
        run: Run,
        input: Vec<Arc<Message>>,
    ) -> Result<Self, PersistenceError> {
        let slot = run.reserve().await?;
        Ok(Self { run, input, slot })
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
        let submission = {
            let mut state = run.state();
            let (service_id, recording) = (state.service_id.clone(), state.recording);
            let adopted = run.adopt_service_id(service_id.as_ref(), recording, &answer)?;
            let first = state.taken + input.len();
            answer.messages = run.number(first, std::mem::take(&mut answer.messages));
            let mut messages = input;
            messages.extend(answer.messages.iter().cloned());
            if !run.policy().keep_trailing_results {
                trim_trailing_results(&mut messages);
            }
            run.submit(&mut state, slot, messages, Some(adopted)).0
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

/// Drops the results at the end that answer calls of this run: no service call has seen them, and
/// per-service-call persistence would not have stored them either.
///
/// Results of approved calls stay: their calls were stored by an earlier run, and would wait for
/// approval again.
fn trim_trailing_results(messages: &mut Vec<Arc<Message>>) {
    let is_results = |message: &Arc<Message>| message.role == Role::Tool;
    let trailing = messages.iter().rev().take_while(|message| is_results(message)).count();
    let kept = messages.len() - trailing;
    let asked = messages.get(..kept).and_then(<[_]>::last);
    if asked.is_some_and(|message| message.calls().next().is_some()) {
        messages.truncate(kept);
    }
}
