//! The layer.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use tower_chat_core::store::HistoryStore;
use tower_layer::Layer;

use super::PerRunPersistenceService;
use crate::{Clock, PersistenceMode, PersistencePolicy, ToolSource, run::Settings};

/// Begins a run for every request, and in per-run mode writes it at its end.
///
/// It loads the history once, puts a [`Run`](crate::run::Run) in the request's extensions, and by
/// [`PersistenceMode`]:
///
/// - **per run**: puts the history before the input, buffers what the run adds, leaves out tool
///   results at its end, and appends everything at once when the answer is complete. A run that
///   fails, is cancelled or is dropped leaves the store untouched.
/// - **per service call**: leaves reading and writing to
///   [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) below the tool loop, and
///   checks that there is one.
///
/// The mode of one request can be chosen by a request extension of type [`PersistenceMode`].
///
/// A request must name its conversation with
/// [`in_conversation`](crate::ChatRequest::in_conversation). The same request sent again is
/// the same run: if its answer is stored, it is returned and the model is not called; otherwise
/// the run goes on from what is stored.
///
/// ```
/// use tower::{Layer, ServiceBuilder};
/// use tower_chat::{PerRunPersistence, PersistenceMode, MemoryStore};
/// let layer = PerRunPersistence::new(MemoryStore::new()).mode(PersistenceMode::PerServiceCall);
/// ```
#[derive(Clone)]
pub struct PerRunPersistence {
    pub(super) settings: Settings,
    pub(super) mode: PersistenceMode,
    /// Where the service below has a tool loop of its own: whether it was warned of that no layer
    /// sees the rounds of that loop.
    pub(super) own_loop: Option<Arc<AtomicBool>>,
}

impl PerRunPersistence {
    /// Persists runs in a store, in per-run mode.
    pub fn new(store: impl HistoryStore) -> Self {
        let (settings, mode) = (Settings::new(store), PersistenceMode::default());
        Self { settings, mode, own_loop: None }
    }

    /// Says whether the service below has a tool loop of its own. The first run whose rounds no layer
    /// sees is then logged.
    pub(crate) fn over_own_loop(mut self, is_over_own_loop: bool) -> Self {
        self.own_loop = is_over_own_loop.then(Arc::default);
        self
    }

    /// Chooses when messages become durable.
    #[must_use]
    pub fn mode(mut self, mode: PersistenceMode) -> Self {
        self.mode = mode;
        self
    }

    /// Makes the other choices, for this layer and the one below the tool loop.
    #[must_use]
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Says which tools are registered, for a replay policy that drops calls of tools that are
    /// not. The pipeline builder does it by itself.
    #[must_use]
    pub fn tools(mut self, tools: impl ToolSource) -> Self {
        self.settings.tools = Some(Arc::new(tools));
        self
    }

    /// Takes the time from another clock than the system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }
}

impl fmt::Debug for PerRunPersistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerRunPersistence")
            .field("mode", &self.mode)
            .field("policy", &self.settings.policy)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for PerRunPersistence {
    type Service = PerRunPersistenceService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PerRunPersistenceService::new(inner, self.clone())
    }
}
