//! [`ChatEndpoint`], which an application configures and converts to a router.
//!
//! A stack is the tower service that the endpoint calls: a model client, which sends requests to a
//! provider, inside the layers that store the conversation and run tools. A run is the work of the
//! stack on one request.

use std::{error::Error, fmt, sync::Arc};

use axum::{
    Router,
    routing::{get, post},
};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};
use tower_chat_delivery::DetachedRunsLayer;
use tower_chat_layers::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, store::HistoryStore,
};

use crate::{
    chat,
    conversation::{Asked, Scope, key_in_scope},
    error_response::ErrorResponse,
    limits::RequestLimits,
    models, runs,
};

/// An HTTP endpoint that calls a tower stack for each request. The documentation of the [crate]
/// describes the requests.
#[derive(Clone)]
pub struct ChatEndpoint {
    pub(crate) stack: BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>,
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) key: Arc<KeyRule>,
    pub(crate) upstream: Arc<UpstreamRule>,
    pub(crate) models: Arc<[String]>,
    pub(crate) limits: RequestLimits,
    pub(crate) runs: Option<DetachedRunsLayer>,
    pub(crate) has_branches: bool,
}

type KeyRule = dyn Fn(&Asked<'_>) -> Result<ConversationKey, ErrorResponse> + Send + Sync;
type UpstreamRule = dyn Fn(&(dyn Error + 'static)) -> Option<ErrorResponse> + Send + Sync;

impl ChatEndpoint {
    /// Creates an endpoint for a stack. `store` must be the store in which the stack stores its
    /// conversations. The endpoint reads this store to find out which messages of a request are
    /// stored already. The endpoint writes to this store only if
    /// [`with_branches`](Self::with_branches) was called. By default, the scope of a request, such
    /// as its user, is the [`Scope`] in its extensions.
    pub fn new<S>(stack: S, store: impl HistoryStore) -> Self
    where
        S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        Self {
            stack: BoxCloneSyncService::new(ServiceExt::map_err(stack, into_box)),
            store: Arc::new(store),
            key: Arc::new(|asked| {
                let scope = asked.extensions.get::<Scope>().ok_or_else(ErrorResponse::no_scope)?;
                key_in_scope(asked, scope.0.clone())
            }),
            upstream: Arc::new(|_| None),
            models: Arc::default(),
            limits: RequestLimits::default(),
            runs: None,
            has_branches: false,
        }
    }

    /// Uses one scope for the conversations of all clients. Every client that knows the id of a
    /// conversation can then continue the conversation. Use this setting for a server with one
    /// user, or behind a proxy that separates users.
    #[must_use]
    pub fn in_one_scope(self, scope: impl Into<Arc<str>>) -> Self {
        let scope = scope.into();
        self.keyed_by(move |asked| key_in_scope(asked, scope.clone()))
    }

    /// Sets the rule that determines the scope and the id of the conversation of a request. The
    /// rule must derive the scope from data that was authenticated, because a client could
    /// otherwise access the conversations of another client.
    #[must_use]
    pub fn keyed_by(
        mut self,
        rule: impl Fn(&Asked<'_>) -> Result<ConversationKey, ErrorResponse> + Send + Sync + 'static,
    ) -> Self {
        self.key = Arc::new(rule);
        self
    }

    /// Sets the function that converts errors of the model client to error responses. The endpoint
    /// examines the error of a request, and then each source of the error, until one of them has a
    /// response. For each of these errors, the endpoint calls the function, and then compares the
    /// error with the error types of tower-chat. If no response is found, the status is 502.
    ///
    /// ```
    /// use tower_chat_http::{ChatEndpoint, ErrorResponse};
    /// use tower_chat_providers::ProviderError;
    /// # fn with(endpoint: ChatEndpoint) -> ChatEndpoint {
    /// endpoint.with_upstream(|error| {
    ///     let error = error.downcast_ref::<ProviderError>()?;
    ///     let refusal = ErrorResponse::upstream(error.status()?, error.to_string());
    ///     Some(match error.retry_after() {
    ///         Some(wait) => refusal.with_retry_after(wait),
    ///         None => refusal,
    ///     })
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn with_upstream(
        mut self,
        rule: impl Fn(&(dyn Error + 'static)) -> Option<ErrorResponse> + Send + Sync + 'static,
    ) -> Self {
        self.upstream = Arc::new(rule);
        self
    }

    /// Sets the models that `/v1/models` lists. The endpoint refuses a request that names another
    /// model. By default the list is empty, and the endpoint passes every model name to the model
    /// client.
    #[must_use]
    pub fn with_models<M: Into<String>>(mut self, models: impl IntoIterator<Item = M>) -> Self {
        self.models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the limits on the size of a request.
    #[must_use]
    pub fn with_limits(mut self, limits: RequestLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds the routes with which a client reads the events of a run again, or stops the run. The
    /// stack must contain `runs` as a layer, because this layer continues a run after its client
    /// has disconnected.
    ///
    /// ```
    /// use tower::Layer;
    /// use tower_chat::{ChatPipeline, MemoryStore};
    /// use tower_chat_delivery::{DetachedRunsLayer, MemoryUpdateLog};
    /// use tower_chat_http::ChatEndpoint;
    ///
    /// fn endpoint(pipeline: ChatPipeline, store: MemoryStore) -> ChatEndpoint {
    ///     let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    ///     ChatEndpoint::new(runs.layer(pipeline), store).with_runs(runs)
    /// }
    /// ```
    #[must_use]
    pub fn with_runs(mut self, runs: DetachedRunsLayer) -> Self {
        self.runs = Some(runs);
        self
    }

    /// If a request differs from the stored conversation, answers the request in a branch, a new
    /// conversation with a copy of the common beginning. Without this setting, the status for such
    /// a request is 409. Clients that send the whole conversation with each request can then edit a
    /// question or ask for another answer.
    ///
    /// The endpoint copies the conversation up to the end of the last turn that the request repeats
    /// ([`fork_at`](tower_chat_layers::store::Maintenance::fork_at)). A turn is the messages of one
    /// run. The remaining messages of the request are added to this copy, the branch. The branch is
    /// in the scope of the conversation. The header `x-conversation-id` of the response contains
    /// the id of the branch. The client should send this id with its further requests, because a
    /// request with the id of the original conversation is compared with the original conversation
    /// again.
    ///
    /// - A request that repeats everything up to the last question is answered in a branch too,
    ///   unless the client marks the request as a retry (`x-stainless-retry-count`). A client that
    ///   may repeat a request without this header should send a run id (`x-run-id`): the same
    ///   request with the same run id continues in the same branch.
    /// - If the client did not send a run id with an edited request, a retry of this request
    ///   creates another branch.
    /// - A request without a message of the model cannot be compared with the stored conversation.
    ///   All messages of such a request are treated as new.
    /// - Each branch is a copy of the common turns. The application should therefore limit the
    ///   number of requests of a client.
    /// - Branches are not deleted with the original conversation. To delete the branches too, first
    ///   delete the conversations that
    ///   [`branches_of`](tower_chat_layers::store::ConversationQuery::branches_of) finds, and then
    ///   the original conversation.
    ///
    /// The status for a request that differs is still 409 in these cases:
    ///
    /// - The request repeats an answer or a tool call of the conversation, but the endpoint finds
    ///   no turn after which the branch could begin. The search compares only a few turns.
    /// - The id of the conversation is not valid in a header. The id of the branch would then not
    ///   be valid in the header of the response either.
    /// - The store does not implement [`Maintenance`](tower_chat_layers::store::Maintenance).
    #[must_use]
    pub fn with_branches(mut self) -> Self {
        self.has_branches = true;
        self
    }

    /// Converts the endpoint to an axum router, which the application serves or merges into another
    /// router. [`RequestLimits::max_body_bytes`] limits the size of a body. axum's
    /// `DefaultBodyLimit` has no effect.
    pub fn into_router(self) -> Router {
        let mut router = Router::new()
            .route("/v1/chat/completions", post(chat::complete))
            .route("/v1/models", get(models::list))
            .route("/v1/models/{*model}", get(models::one));
        if self.runs.is_some() {
            const RUN: &str = "/v1/conversations/{conversation}/runs/{run}";
            router = router
                .route(RUN, get(runs::state))
                .route(&format!("{RUN}/events"), get(runs::events))
                .route(&format!("{RUN}/stop"), post(runs::stop));
        }
        router.with_state(self)
    }
}

impl fmt::Debug for ChatEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatEndpoint").field("models", &self.models).finish_non_exhaustive()
    }
}

fn into_box(error: impl Into<BoxError>) -> BoxError {
    error.into()
}
