//! The layer below the tool loop, and its settings.

use std::{fmt, sync::Arc};

use tower_chat_core::store::HistoryStore;
use tower_layer::Layer;

use super::PerServiceCallPersistenceService;
use crate::{Clock, PersistencePolicy, ToolSource, run::Settings};

/// Stores every service call. The layer puts the history before the request's messages, stores the
/// new messages and the answer in one write, and sets
/// [`HistoryOwner::Local`](crate::HistoryOwner::Local) (the sentinel) as the history owner of the
/// response. A tool loop that receives the sentinel sends only new messages.
///
/// The end of a service call determines which of its messages are stored:
///
/// | event | stored messages of this call |
/// |---|---|
/// | the answer is complete | its inputs and the answer, before the caller sees the end |
/// | the service fails | its inputs, as [`with_inputs_of_failed_call`] selects (by default all) |
/// | the future or stream is dropped, for any reason | its inputs |
/// | the process is killed | either no message of the current write, or all of its messages |
///
/// [`with_inputs_of_failed_call`]: crate::PersistencePolicy::with_inputs_of_failed_call
///
/// Earlier service calls of the run remain stored in every case.
///
/// If a loop nevertheless sends stored messages again, the layer recognises these messages by their
/// ids or by their content.
///
/// Under [`PerRunPersistence`](crate::PerRunPersistence), the mode and the policy of its run apply.
/// Without `PerRunPersistence`, each request must name a conversation, and the first service call
/// of a [`ToolLoopLayer`](crate::ToolLoopLayer) begins one run for all service calls of the loop.
/// The run loads the history once. Before the run stores messages, it applies the
/// [`persist`](crate::Tool::persist) hooks of the loop's tools. The run also records the times and
/// outcomes of tool calls. If a request is sent again, its run continues after the stored messages,
/// and the answer contains only the messages that this attempt has added. If the run was complete,
/// the layer returns the stored answer.
///
/// **Under your own tool loop** with your own types, the loop may send the whole conversation, the
/// messages of its run, or only new messages. The layer compares each request with the stored
/// messages: roles, texts, media, ids and names of calls, and the calls that results answer.
/// - If the types of the loop do not preserve the id of the run, a request that continues the
///   stored messages belongs to the last stored run.
/// - A request that repeats stored messages with differences fails with
///   [`HistorySentAgain`](crate::PersistenceError::HistorySentAgain).
/// - If the request of a complete run is sent again, the layer returns the last response of the
///   run.
/// - Every service call loads the history.
/// - The layer cannot record when tool calls start and finish.
/// - Without [`tools`](Self::tools), the layer stores arguments and results unchanged. With them,
///   it applies their [`persist`](crate::Tool::persist) hooks.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_chat::{MemoryStore, layer::PerServiceCallPersistence};
/// let layer = PerServiceCallPersistence::new(MemoryStore::new());
/// ```
#[derive(Clone)]
pub struct PerServiceCallPersistence {
    pub(super) settings: Settings,
}

impl PerServiceCallPersistence {
    /// Creates a layer that stores service calls in a store.
    pub fn new(store: impl HistoryStore) -> Self {
        Self { settings: Settings::new(store) }
    }

    /// Sets the policy, which applies if no `PerRunPersistence` is above this layer. Otherwise, the
    /// policy of the `PerRunPersistence` applies.
    #[must_use]
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets the registered tools, which apply if no `PerRunPersistence` is above this layer. A
    /// replay policy that drops calls of unregistered tools needs the registered tools. Under a
    /// tool loop of another crate, the layer also calls the hooks of these tools. Under a
    /// [`ToolLoopLayer`](crate::ToolLoopLayer), the layer calls the hooks of the loop's tools.
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

impl fmt::Debug for PerServiceCallPersistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerServiceCallPersistence")
            .field("policy", &self.settings.policy)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for PerServiceCallPersistence {
    type Service = PerServiceCallPersistenceService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PerServiceCallPersistenceService::new(inner, self.clone())
    }
}
