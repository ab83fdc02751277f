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

/// Begins a run for every request, and in per-run mode writes it at its end.
///
/// The layer loads the history once, puts a [`Run`](crate::run::Run) in the request's extensions, and
/// continues by [`PersistenceMode`]:
///
/// - **per run**: holds the messages that the run adds. When the answer is complete, appends all messages in
///   one write, without results of tools at the end of the run. A run that fails, is cancelled or is
///   dropped does not change the store. The layer below that makes the service calls puts the history
///   before their messages: [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) or the tool
///   loop of this crate. If this layer finds neither, it puts the history before the input.
/// - **per service call**: leaves reading and writing to
///   [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) below the tool loop, and checks
///   that this layer exists.
///
/// A request extension of type [`PersistenceMode`] sets the mode of one request.
///
/// A request must name its conversation with [`in_conversation`](crate::ChatRequest::in_conversation).
/// The same request sent again is the same run. If its answer is stored, the layer returns that answer
/// and does not call the model. Otherwise the run continues from the stored messages.
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
    /// If the service below has its own tool loop: whether a warning about unseen rounds of that loop
    /// was logged.
    pub(super) own_loop: Option<Arc<AtomicBool>>,
    /// The layers of this crate that the service has found below.
    pub(super) below: Arc<LayersBelow>,
}

impl PerRunPersistence {
    /// Creates a layer that stores runs in per-run mode.
    pub fn new(store: impl HistoryStore) -> Self {
        let (settings, mode) = (Settings::new(store), PersistenceMode::default());
        Self { settings, mode, own_loop: None, below: Arc::default() }
    }

    /// Sets whether the service below has its own tool loop. If it has, a warning is logged for the first
    /// run with rounds that no layer sees.
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

    /// Sets the policy of this layer and of the layer below the tool loop.
    #[must_use]
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets the registered tools, for a replay policy that drops calls of unregistered tools. The
    /// pipeline builder sets them automatically.
    #[must_use]
    pub fn tools(mut self, tools: impl ToolSource) -> Self {
        self.settings.tools = Some(Arc::new(tools));
        self
    }

    /// Sets the clock, in place of the system's clock.
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
