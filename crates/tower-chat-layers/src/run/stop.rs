//! How a run that is stored as it goes ends where it stands.

use std::sync::Arc;

use tower_chat_core::{EndedBy, Message, store::author::Slot};

use super::{Run, write::RunWrite};
use crate::PersistenceError;

impl Run {
    /// Stores what is left of a run that is stopped, and that it is complete: what no service call
    /// has carried, or only one that was dropped, and what has come of that one's answer. Results at
    /// the end are part of the history, so that the model knows what its calls have done.
    ///
    /// The submission is made before the first await. Nothing is stored where the persister was
    /// missed, since then nobody has stored the calls.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::NotStored`].
    pub(crate) async fn stop(
        &self,
        unsent: Vec<Arc<Message>>,
        answer: Vec<Arc<Message>>,
    ) -> Result<(), PersistenceError> {
        let mut submission = {
            let mut state = self.state();
            if state.is_persister_missed {
                return Ok(());
            }
            // Its text is among the messages.
            state.of_mode.forget_partial_text();
            let mut messages = self.not_stored_of(&state, unsent);
            messages.extend(answer);
            messages.retain(|message| {
                let index = message.id.filter(|id| id.run == self.id()).map(|id| id.index);
                index.is_none_or(|index| index as usize >= state.conversation.taken)
            });
            let mut messages = self.number(state.conversation.taken, messages);
            state.mark_trailing_results(&mut messages);
            let close = self.recorder().close();
            let write = RunWrite {
                close,
                ends_run: true,
                ended_by: Some(EndedBy::Stop),
                ..RunWrite::messages(messages)
            };
            self.submit(&mut state, Ok(Slot::unbounded()), write).0
        };
        match submission.outcome().await {
            Ok(unsaved) => {
                self.state().unsaved = unsaved;
                Ok(())
            }
            Err(failed) => Err(self.refused(failed, None).await),
        }
    }
}
