//! The layer below the tool loop, and its settings.

use std::{fmt, sync::Arc};

use tower_chat_core::store::HistoryStore;
use tower_layer::Layer;

use super::PerServiceCallPersistenceService;
use crate::{Clock, PersistencePolicy, ToolSource, run::Settings};

/// Stores every service call. The layer puts the history before the request's messages, stores the new
/// messages and the answer in one write, and adds the sentinel to the response.
///
/// The stored messages of a call, for every way in which it ends:
///
/// | event | stored messages of this call |
/// |---|---|
/// | the answer is complete | its inputs and the answer, before the caller sees the end |
/// | the service fails | nothing, except results of tools that have run (by policy) |
/// | the future or stream is dropped, for any reason | its inputs |
/// | the process is killed | nothing, or all of it |
///
/// Earlier service calls of the run remain stored in every case.
///
/// With the sentinel ([`HistoryOwner::Local`](crate::HistoryOwner::Local)), the tool loop sends only
/// new messages. If a loop sends stored messages again, the layer recognises them by their ids or by
/// their content.
///
/// Under [`PerRunPersistence`](crate::PerRunPersistence), the layer follows that run's mode and policy.
/// Without that layer, the request must name a conversation. The first service call of a
/// [`ToolLoopLayer`](crate::ToolLoopLayer) then begins a run that the loop shares. The run loads the
/// history once. The run applies the hooks of the loop's tools before it stores messages, and records the
/// times and outcomes of tool calls. A request that is sent again continues after the stored messages of
/// its run, and its answer contains only the messages that this attempt has added. If the run was
/// complete, the answer is the stored one.
///
/// **Under your own tool loop** with your own types, the layer compares each request with the stored
/// messages, message by message: roles, texts, media, ids and names of calls, and the calls that results
/// answer. The loop may send the whole conversation, the messages of its run, or only new messages. If
/// its types lose the id of the run, a request that continues the stored messages belongs to the last
/// stored run. A request that repeats stored messages with differences fails with
/// [`HistorySentAgain`](crate::PersistenceError::HistorySentAgain). A complete run that is sent again
/// returns its last response. Every service call loads the history. The layer does not know when tool
/// calls start and finish, and does not know the tools. Set the [`tools`](Self::tools) whose
/// [`persist`](crate::Tool::persist) hooks must be called. Otherwise, arguments and results are stored
/// unchanged.
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

    /// Sets the policy of a layer without a `PerRunPersistence` above it. With one, the policy of that
    /// layer applies.
    #[must_use]
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets the registered tools of a layer without a `PerRunPersistence` above it. The tools are needed
    /// for a replay policy that drops calls of unregistered tools, and for the tools' hooks under a tool
    /// loop of another crate. A [`ToolLoopLayer`](crate::ToolLoopLayer) passes its tools for their hooks
    /// automatically.
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
