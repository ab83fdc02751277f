//! The layer above the tool loop, and its settings.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use tower_chat_core::store::HistoryStore;
use tower_layer::Layer;

use super::PerRunPersistenceService;
use crate::{
    Clock, PersistenceMode, PersistencePolicy, ToolSource, layers_below::LayersBelow, run::Settings,
};

/// Begins a run for every request, and in per-run mode stores the run at its end.
///
/// The layer loads the history once, puts a [`Run`](crate::run::Run) in the request's extensions,
/// and continues depending on the [`PersistenceMode`]:
///
/// - **per run**: buffers the messages that the run adds. When the answer is complete, appends all
///   messages in one write, except results of tools after the last answer. A run that fails, is
///   cancelled or is dropped does not change the store. The layer puts the history before the
///   input. If [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) or the tool loop of
///   this crate is below, each service call contains the history and all messages of the run until
///   then.
/// - **per service call**: [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) below
///   the tool loop puts the history before the messages of each service call, and stores each
///   answer. `PerRunPersistence` checks that `PerServiceCallPersistence` exists.
///
/// A request extension of type [`PersistenceMode`] sets the mode of one request.
///
/// A request must name its conversation with
/// [`in_conversation`](crate::ChatRequest::in_conversation). If the same request is sent again, the
/// request continues the same run. If the answer of the run is stored, the layer returns that
/// answer and does not call the model. Otherwise the run continues after the stored messages.
///
/// ```
/// use tower::{Layer, ServiceBuilder};
/// use tower_chat::{MemoryStore, PersistenceMode, layer::PerRunPersistence};
/// let layer = PerRunPersistence::new(MemoryStore::new()).mode(PersistenceMode::PerServiceCall);
/// ```
#[derive(Clone)]
pub struct PerRunPersistence {
    pub(super) settings: Settings,
    pub(super) mode: PersistenceMode,
    /// Whether the layer has logged that the answer of the client's own tool loop lacks tool calls
    /// and results. `None` if the client has no such loop.
    pub(super) own_loop: Option<Arc<AtomicBool>>,
    pub(super) below: Arc<LayersBelow>,
}

impl PerRunPersistence {
    /// Creates a layer that stores runs in per-run mode.
    pub fn new(store: impl HistoryStore) -> Self {
        let (settings, mode) = (Settings::new(store), PersistenceMode::default());
        Self { settings, mode, own_loop: None, below: Arc::default() }
    }

    /// Sets whether the client below has its own tool loop. The layer then logs a warning after the
    /// first run whose calls and results that loop has not reported.
    pub(crate) fn over_own_loop(mut self, is_over_own_loop: bool) -> Self {
        self.own_loop = is_over_own_loop.then(Arc::default);
        self
    }

    /// Sets the mode, which decides when messages become durable.
    #[must_use]
    pub fn mode(mut self, mode: PersistenceMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the policy of this layer and of `PerServiceCallPersistence` below the tool loop.
    #[must_use]
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets the registered tools, for a replay policy that drops calls of unregistered tools. The
    /// pipeline builder calls this method automatically.
    #[must_use]
    pub fn tools(mut self, tools: impl ToolSource) -> Self {
        self.settings.tools = Some(Arc::new(tools));
        self
    }

    /// Sets the clock. By default, the layer uses the clock of the system.
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
        PerRunPersistenceService::new(inner, Self { below: Arc::default(), ..self.clone() })
    }
}
