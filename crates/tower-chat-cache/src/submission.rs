//! Writes on their way into the store inside.

use std::{mem, sync::Arc};

use smallvec::SmallVec;
use tower_chat_core::ConversationKey;

use crate::conversations::Conversations;

/// The conversations of a submission: one, except where an outbox is emptied.
pub(crate) type Keys = SmallVec<[ConversationKey; 1]>;

/// A submission whose outcome nobody has seen yet. Dropped like that, it leaves nothing known of its
/// conversations.
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

    /// The store inside has it: readings that begin from now on see it.
    pub(crate) fn submitted(&mut self) {
        self.is_submitted = true;
        let mut all = self.conversations.traffic();
        for key in &self.keys {
            if let Some(traffic) = all.get_mut(key) {
                traffic.submitting -= 1;
            }
        }
    }

    /// Its outcome was seen.
    pub(crate) fn settled(mut self, is_stored: bool) {
        self.settle(is_stored);
    }

    fn settle(&mut self, is_stored: bool) {
        let mut all = self.conversations.traffic();
        for key in mem::take(&mut self.keys) {
            let Some(traffic) = all.get_mut(&key) else { continue };
            traffic.unsettled -= 1;
            if !self.is_submitted {
                traffic.submitting -= 1;
            }
            if !is_stored {
                traffic.ahead = None;
            }
            if traffic.unsettled > 0 {
                continue;
            }
            traffic.is_unordered = false;
            match traffic.ahead.take() {
                Some(ahead) => self.conversations.keep(&key, &mut traffic.place, ahead),
                None => self.conversations.forget(&key, &mut traffic.place),
            }
        }
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        self.settle(false);
    }
}
