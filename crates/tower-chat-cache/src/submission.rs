//! Submissions of writes to the inner store.

use std::{mem, sync::Arc};

use tower_chat_core::ConversationKey;

use crate::conversations::Conversations;

/// The conversations of a submission: usually one. There are several if earlier writes to other
/// conversations failed and are submitted again.
pub(crate) type Keys = Vec<ConversationKey>;

/// A submission without an outcome. If the submission is dropped before it has an outcome, the
/// cached state of its conversations is dropped too.
#[derive(Debug)]
pub(crate) struct Submission {
    conversations: Arc<Conversations>,
    keys: Keys,
    is_submitted: bool,
}

impl Submission {
    pub(crate) fn new(conversations: Arc<Conversations>, keys: Keys) -> Self {
        Self { conversations, keys, is_submitted: false }
    }

    /// Records that the inner store has received the writes, so that reads that begin later include
    /// them.
    pub(crate) fn submitted(&mut self) {
        self.is_submitted = true;
        let mut all = self.conversations.in_flight();
        for key in &self.keys {
            if let Some(in_flight) = all.get_mut(key) {
                in_flight.submitting -= 1;
            }
        }
    }

    pub(crate) fn settled(mut self, is_stored: bool) {
        self.settle(is_stored);
    }

    fn settle(&mut self, is_stored: bool) {
        let mut all = self.conversations.in_flight();
        for key in mem::take(&mut self.keys) {
            let Some(in_flight) = all.get_mut(&key) else { continue };
            in_flight.unsettled -= 1;
            if !self.is_submitted {
                in_flight.submitting -= 1;
            }
            if !is_stored {
                in_flight.after_writes = None;
            }
            if in_flight.unsettled > 0 {
                continue;
            }
            in_flight.may_be_reordered = false;
            match in_flight.after_writes.take() {
                Some(after_writes) => {
                    self.conversations.keep(&key, &mut in_flight.entry, after_writes)
                }
                None => self.conversations.forget(&key, &mut in_flight.entry),
            }
        }
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        self.settle(false);
    }
}
