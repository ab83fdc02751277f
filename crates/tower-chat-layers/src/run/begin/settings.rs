//! The configuration of a persistence layer.

use std::{any::Any, sync::Arc, time::Duration};

use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey,
    store::{HistoryStore, Lease, OpenRun},
};

use crate::{
    Clock, PersistenceError, PersistencePolicy, ToolSource,
    replay::{Channel, ReplaySources},
};

/// The configuration of a persistence layer, of which each run receives a clone.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) policy: PersistencePolicy,
    pub(crate) clock: Clock,
    pub(crate) tools: Option<Arc<dyn ToolSource>>,
}

impl Settings {
    pub(crate) fn new(store: impl HistoryStore) -> Self {
        Self {
            store: shared(store),
            policy: PersistencePolicy::default(),
            clock: Clock::default(),
            tools: None,
        }
    }

    /// Returns the error, if another process has the lease of an open run.
    pub(crate) fn held_elsewhere(
        &self,
        key: &ConversationKey,
        open: &OpenRun,
    ) -> Option<PersistenceError> {
        let handle = self.store.handle();
        let Lease { holder, until, .. } = open.lease;
        let until = until.time().filter(|until| self.clock.now() < *until)?;
        let is_elsewhere = holder != handle.holder() && !handle.is_exclusive();
        is_elsewhere.then(|| PersistenceError::RunHeld {
            key: key.clone(),
            run: open.run,
            holder,
            until,
        })
    }

    pub(in crate::run) fn replay_sources<'a>(
        &'a self,
        conversation: &'a Conversation,
        request: &'a ChatRequest,
    ) -> ReplaySources<'a> {
        ReplaySources {
            store: &*self.store,
            key: &conversation.key,
            policy: &self.policy.replay,
            now: self.clock.now(),
            channel: request.extensions.get::<Channel>(),
            tools: self.tools.as_deref(),
            run: Some(conversation.run),
        }
    }

    /// Returns how long a run's lease lasts after its last renewal. Zero if no other process can
    /// access the store.
    pub(super) fn lease_length(&self) -> Duration {
        match self.store.handle().is_exclusive() {
            true => Duration::ZERO,
            false => self.policy.journal.lease,
        }
    }
}

/// Returns the store as an `Arc<dyn HistoryStore>`. An `Arc` is returned unchanged, because a
/// second layer of dynamic dispatch would allocate a future for each operation.
pub(crate) fn shared(store: impl HistoryStore) -> Arc<dyn HistoryStore> {
    let any: &dyn Any = &store;
    match any.downcast_ref::<Arc<dyn HistoryStore>>() {
        Some(shared) => shared.clone(),
        None => Arc::new(store),
    }
}
