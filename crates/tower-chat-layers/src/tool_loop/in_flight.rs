//! What a service call carries that nobody else has until it is answered.

use tower_chat_core::{Message, Messages, RunHandle};

use crate::run::{Event, Run};

/// What the loop has put into the service call under way.
#[derive(Default)]
pub(super) struct InFlight {
    /// Queued messages, the last that the call carries.
    pub(super) queued: Vec<Message>,
    /// What no service call before has carried.
    pub(super) messages: Messages,
    /// Whether results are among them that a persister below would get with it.
    pub(super) has_results: bool,
}

impl InFlight {
    /// The call comes to no answer: what the run has not taken in from it goes back to where it
    /// came from. The call must be over, so that the persister has stored what it keeps.
    pub(super) fn give_back(self, ordinal: u32, run: Option<&Run>, handle: &RunHandle) {
        let Self { mut queued, messages, has_results } = self;
        let left = run.and_then(|run| run.left_of_call(ordinal));
        if let (Some(run), true, None) = (run, has_results, left) {
            // No persister has seen the call.
            let count = messages.len().saturating_sub(queued.len());
            let messages = messages.iter().take(count).cloned().collect();
            run.note(Event::ResultsUnsent { messages });
        }
        if let Some(left) = left {
            queued.drain(..queued.len().saturating_sub(left));
        }
        handle.put_back(queued);
    }

    /// What of the call's messages the run has not taken in. The call must be over.
    pub(super) fn left(self, ordinal: u32, run: &Run) -> Messages {
        let count = self.messages.len();
        let left = run.left_of_call(ordinal).unwrap_or(count);
        self.messages.skip(count.saturating_sub(left))
    }
}
