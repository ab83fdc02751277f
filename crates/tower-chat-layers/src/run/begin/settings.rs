//! What a persistence layer was configured with.

use std::{any::Any, sync::Arc, time::Duration};

use tower_chat_core::{
    ConversationKey,
    store::{Head, HistoryStore, Lease, OpenRun},
};

use crate::{Clock, PersistenceError, PersistencePolicy, ToolSource, run::history::load_head};

/// What a persistence layer was configured with, and gives each of its runs.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) policy: PersistencePolicy,
    pub(crate) clock: Clock,
    /// The tools that are registered, where a replay policy has to know.
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

    /// The error that names another process which may be at work on an open run, and until when it
    /// holds the run; `None` if there is no such process.
    pub(crate) fn held_elsewhere(
        &self,
        key: &ConversationKey,
        open: &OpenRun,
    ) -> Option<PersistenceError> {
        let handle = self.store.handle();
        let Lease { holder, until, .. } = open.lease;
        let until = until.filter(|until| self.clock.now() < *until)?;
        let is_elsewhere = holder != handle.holder() && !handle.is_exclusive();
        is_elsewhere.then(|| PersistenceError::RunHeld {
            key: key.clone(),
            run: open.run,
            holder,
            until,
        })
    }

    /// For how long a run of the store is held after its last sign of life.
    pub(super) fn lease_length(&self) -> Duration {
        match self.store.handle().is_exclusive() {
            true => Duration::ZERO,
            false => self.policy.journal.lease,
        }
    }
}

/// A store behind one pointer, also if it is behind one already: each more would put the future of
/// each operation into a box more.
pub(crate) fn shared(store: impl HistoryStore) -> Arc<dyn HistoryStore> {
    let any: &dyn Any = &store;
    match any.downcast_ref::<Arc<dyn HistoryStore>>() {
        Some(shared) => shared.clone(),
        None => Arc::new(store),
    }
}

/// The conversation's head as it will be once the outbox is empty.
///
/// # Errors
///
/// [`PersistenceError::NotLoaded`].
pub(crate) async fn head_of(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Head, PersistenceError> {
    let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
    load_head(&settings.store, key).await.map_err(not_loaded)
}
