//! The answer of a run that is sent again.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, Finish, Message, Role, RunId};

use crate::{
    PersistenceError,
    run::{
        Run, ServiceCall, State,
        journaled::input_of,
        partial_text::is_partial_response,
        run_end::{as_answered, is_complete},
    },
};

impl Run {
    /// What the run had answered, if it is stored whole already: a request that is sent again
    /// after its answer was lost gets the same one.
    ///
    /// # Errors
    ///
    /// If the run is stored in part and another run has gone on after it.
    pub(crate) fn stored_answer(
        &self,
        request: &ChatRequest,
    ) -> Result<Option<Answer>, PersistenceError> {
        let state = self.state();
        let input = state.input_len(self.id(), request);
        let answer = state.conversation.added.get(input..).unwrap_or_default();
        let recorded = state.stored_before.recorded_end.as_deref().filter(|_| !answer.is_empty());
        if recorded.is_none() && !is_complete(answer) {
            if state.stored_before.is_overtaken {
                let (key, run) = (self.key().clone(), self.id());
                return Err(PersistenceError::RunOvertaken { key, run });
            }
            return Ok(None);
        }
        let next = state.conversation.next_id(self.id());
        let messages = as_answered(answer, recorded, next);
        drop(state);
        let mut finish = Finish::default();
        finish.saved = Some(self.saved());
        Ok(Some(Answer::new(messages, finish)))
    }

    /// The stored answer, for a request that a persister without a run above it sees again. A
    /// foreign tool loop numbers no service calls, so the whole input must be the same.
    ///
    /// # Errors
    ///
    /// If the run is stored in part and another run has gone on after it.
    pub(crate) fn repeated_answer(
        &self,
        request: &ChatRequest,
    ) -> Result<Option<Answer>, PersistenceError> {
        if let Some(answer) = self.last_answer() {
            return Ok(Some(answer));
        }
        let ordinal = request.extensions.get::<ServiceCall>().map(|call| call.ordinal);
        let state = self.state();
        let own = state.input(self.id(), request);
        let is_same = |(own, added): (&Arc<Message>, &Arc<Message>)| {
            own.role == added.role && own.parts == added.parts && own.role != Role::Tool
        };
        let is_repeated = match ordinal {
            Some(ordinal) => ordinal == 0,
            None => !own.is_empty() && own.iter().zip(&state.conversation.added).all(is_same),
        };
        let is_overtaken = state.stored_before.is_overtaken;
        drop(state);
        if is_repeated || is_overtaken { self.stored_answer(request) } else { Ok(None) }
    }

    /// What the run had added after its input before it was interrupted: part of its answer.
    pub(crate) fn answered_before(&self, request: &ChatRequest) -> Vec<Arc<Message>> {
        let state = self.state();
        let input = state.input_len(self.id(), request);
        let added = state.conversation.added.get(input..).unwrap_or_default();
        added.iter().filter(|message| !is_partial_response(message, self.id())).cloned().collect()
    }
}

impl State {
    /// How many of the messages that the run has added are its input.
    fn input_len(&self, run: RunId, request: &ChatRequest) -> usize {
        input_of(&self.conversation.added, &self.input(run, request))
    }
}
