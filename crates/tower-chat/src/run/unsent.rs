//! Results of tools whose next service call is never made.

use std::sync::{Arc, atomic::Ordering};

use tower_chat_core::{Message, store::Slot};

use super::Run;

impl Run {
    /// Submits what a tool loop had ready for a service call that it will not make: the results
    /// of tools that have run, and before the first call the input too.
    ///
    /// A submission, so that it can be made where nothing can be awaited. It does nothing where
    /// the run is appended at its end, since then there is no end to append, and where no
    /// persister has stored the calls.
    pub(crate) fn submit_unsent(&self, messages: impl IntoIterator<Item = Arc<Message>>) {
        if self.is_written_at_end() || self.0.persister_missed.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state();
        let messages = self.number(state.added.len(), messages);
        if messages.is_empty() {
            return;
        }
        let slot = Ok(Slot::unbounded().without_blocking());
        let submission = self.submit(&mut state, slot, messages.clone(), None).0;
        messages.iter().for_each(|message| state.replay.push(message));
        drop(state);
        drop(submission);
    }
}
