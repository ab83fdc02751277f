//! The configuration of a persistence layer.

use std::{any::Any, sync::Arc, time::Duration};

use tower_chat_core::{
    ConversationKey,
    store::{HistoryStore, Lease, OpenRun},
};

use crate::{Clock, PersistenceError, PersistencePolicy, ToolSource};

/// The configuration of a persistence layer, which each of its runs receives.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) policy: PersistencePolicy,
    pub(crate) clock: Clock,
    /// The registered tools, if a replay policy needs them.
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

    /// Returns the error that names the other process that may be working on an open run, and the end
    /// of its lease. `None` if there is no such process.
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

    /// Returns the duration of a run's lease after its last renewal.
    pub(super) fn lease_length(&self) -> Duration {
        match self.store.handle().is_exclusive() {
            true => Duration::ZERO,
            false => self.policy.journal.lease,
        }
    }
}

/// Returns the store as an `Arc<dyn HistoryStore>`. If it is one already, returns it unchanged, because
/// a second layer of dynamic dispatch would allocate a future for each operation.
pub(crate) fn shared(store: impl HistoryStore) -> Arc<dyn HistoryStore> {
    let any: &dyn Any = &store;
    match any.downcast_ref::<Arc<dyn HistoryStore>>() {
        Some(shared) => shared.clone(),
        None => Arc::new(store),
    }
}
