//! Results of tools whose next service call is never made.

use std::sync::{Arc, atomic::Ordering};

use tower_chat_core::{Message, store::Slot};

use super::{Run, service_call::ToStore};

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

    /// Whether results of tools are stored although the service call that carries them fails.
    pub(crate) fn keeps_results_of_failed_call(&self) -> bool {
        !self.policy().forget_results_of_failed_call
    }

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
