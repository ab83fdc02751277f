//! The guard of a read of the inner store, which caches the result unless a write may have changed
//! the conversation meanwhile.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey,
    store::{Head, History, HistorySummary},
};

use crate::{
    cached::{Cached, ReadAt},
    conversations::Conversations,
};

/// A read in flight. The result of the read is cached only if no write was submitted since the read
/// began.
#[derive(Debug)]
pub(crate) struct LoadGuard {
    pub(crate) conversations: Arc<Conversations>,
    pub(crate) key: ConversationKey,
    /// The number of submissions when the read began. `None` if the inner store may not have
    /// received all of them yet, so that the result must not be cached.
    pub(crate) generation: Option<u64>,
    pub(crate) read: ReadAt,
}

impl LoadGuard {
    pub(crate) fn record_head(self, head: &Head) {
        self.conversations.learn(&self.key, self.generation, self.read, |known| match known {
            Some(known) => Some(known.with_head(head, self.read)),
            None => Some(Cached::of_head(head, self.read)),
        });
    }

    pub(crate) fn record_history(self, history: &History) {
        self.conversations.learn(&self.key, self.generation, self.read, |known| match known {
            Some(known) => Some(known.with_history(history, self.read)),
            None => Some(Cached::of_history(history, self.read)),
        });
    }

    pub(crate) fn record_summary(self, summary: HistorySummary) {
        let summary = Arc::new(summary);
        self.conversations.learn(&self.key, self.generation, self.read, |known| {
            known.map(|known| known.clone().with_summary(Some(&summary)))
        });
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        let mut all = self.conversations.in_flight();
        let Some(in_flight) = all.get_mut(&self.key) else { return };
        in_flight.readers -= 1;
        in_flight.load_finished(self.read);
    }
}
