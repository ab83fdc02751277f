//! Results of tools whose next service call is never made.

use std::sync::{Arc, atomic::Ordering};

use tower_chat_core::{Message, store::Slot};

use super::{Run, service_call::ToStore};

impl Run {
    /// Submits what a tool loop had ready for a service call that it will not make: the results
    /// of tools that have run, and before the first call the input too.
    ///
    /// A submission, so that it can be made where nothing can be awaited. Only for a run whose
    /// persister is below the loop; it does nothing where that was missed, since then nobody has
    /// stored the calls.
    pub(crate) fn submit_unsent(&self, messages: Vec<Arc<Message>>) {
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
}
