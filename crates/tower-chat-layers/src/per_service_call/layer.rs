//! The layer.

use std::{fmt, sync::Arc};

use tower_chat_core::store::HistoryStore;
use tower_layer::Layer;

use super::PerServiceCallPersistenceService;
use crate::{Clock, PersistencePolicy, ToolSource, run::Settings};

/// Persists every service call: the history goes before the request, what was new and what was
/// answered go into the store in one append, and the sentinel goes on the response.
///
/// What is in the store, wherever a call stops:
///
/// | what happens | what is stored of this call |
/// |---|---|
/// | the answer is complete | its inputs and the answer, before the caller sees the end |
/// | the service fails | nothing, but for results of tools that have run (by policy) |
/// | the future or stream is dropped, for whatever reason | its inputs |
/// | the process is killed | nothing, or all of it |
///
/// Earlier service calls of the run stay in every case.
///
/// The sentinel ([`HistoryOwner::Local`](crate::HistoryOwner::Local))
/// tells the tool loop to send only what is new. Of a loop that sends messages again, those that are
/// stored are recognised, by their ids or by what they say.
///
/// Under [`PerRunPersistence`](crate::PerRunPersistence) the layer follows that run's mode and
/// policy. By itself it needs a conversation on the request. The first service call of a
/// [`ToolLoop`](crate::ToolLoop) then begins a run, which loads the history once and which the loop
/// shares: it stores what the hooks of the loop's tools allow, and records when tools ran and what
/// became of them. A request that is sent again goes on after what is stored of its run, and its
/// answer holds only what it has added. If the run was complete, the answer is the stored one.
///
/// **Under a tool loop of your own**, over types of your own, each request is compared with what is
/// stored, message by message: roles, texts, media, ids and names of calls, and which calls results
/// answer. The loop may send the whole conversation, its run, or what is new. If its types lose the
/// id of the run, a request that goes on with the stored messages belongs to the run stored last. A
/// request that repeats stored messages otherwise than they are stored is
/// [`HistorySentAgain`](crate::PersistenceError::HistorySentAgain). A run that is sent again when it is
/// complete returns its last response. Every service call loads the history, when tools ran is not
/// known, and no tool is: give the layer the [`tools`](Self::tools) whose
/// [`persist`](crate::Tool::persist) hooks must be asked, or arguments and results are stored as they
/// are.
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_chat::{PerServiceCallPersistence, MemoryStore};
/// let layer = PerServiceCallPersistence::new(MemoryStore::new());
/// ```
#[derive(Clone)]
pub struct PerServiceCallPersistence {
    pub(super) settings: Settings,
}

impl PerServiceCallPersistence {
    /// Persists service calls in a store.
    pub fn new(store: impl HistoryStore) -> Self {
        Self { settings: Settings::new(store) }
    }

    /// Makes the other choices, where the layer works by itself; under `PerRunPersistence` that
    /// layer's policy holds.
    #[must_use]
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Says which tools are registered, where the layer works by itself: for a replay policy that
    /// drops calls of tools that are not, and for the tools' hooks under a foreign tool loop.
    /// A [`ToolLoop`](crate::ToolLoop) names the tools for their hooks by itself.
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
