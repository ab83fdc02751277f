//! A reading of the store inside, and what the cache learns from it.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey,
    store::{Head, History},
};

use crate::{
    cached::{Cached, ReadAt},
    conversations::Conversations,
};

/// A reading under way. What it sees is kept only if no submission came since it began.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) conversations: Arc<Conversations>,
    pub(crate) key: ConversationKey,
    /// `None` if a submission was being made when the reading began.
    pub(crate) generation: Option<u64>,
    pub(crate) read: ReadAt,
}

impl Reading {
    pub(crate) fn saw_head(self, head: &Head) {
        self.conversations.learn(&self.key, self.generation, self.read, |known| match known {
            Some(known) => known.with_head(head, self.read),
            None => Cached::of_head(head, self.read),
        });
    }

    pub(crate) fn saw_history(self, history: &History) {
        self.conversations.learn(&self.key, self.generation, self.read, |known| match known {
            Some(known) => known.with_history(history, self.read),
            None => Cached::of_history(history, self.read),
        });
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut all = self.conversations.traffic();
        let Some(traffic) = all.get_mut(&self.key) else { return };
        traffic.readers -= 1;
        traffic.landed(self.read);
    }
}
