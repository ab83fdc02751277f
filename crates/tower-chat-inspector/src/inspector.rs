//! [`Inspector`]: the configuration of the pages, and the router and the server that serve them.

use std::{future::Future, io, net::SocketAddr, sync::Arc};

use axum::{
    Router, middleware,
    routing::{get, post},
};
use sha2::{Digest, Sha256};
use tokio::{net::TcpListener, sync::Semaphore};
use tower::{Service, ServiceExt as _, util::BoxCloneSyncService};
use tower_chat_delivery::DetachedRunsLayer;
use tower_chat_layers::{
    BoxError, ChatRequest, ChatResponse, replay::ReplayPolicy, store::HistoryStore,
};

use crate::{
    guard,
    live::{self, Followers},
    pages, serving,
};

/// The maximum number of requests that read a whole conversation at the same time.
const MAX_WHOLE_PAGES: usize = 2;

/// The tower stack that continues a run after a decision about its calls.
pub(crate) type Agent = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// Web pages that show the content of a store. The documentation of the [crate] describes the pages
/// and the access to them.
#[derive(Clone)]
pub struct Inspector {
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) scopes: Scopes,
    /// The SHA-256 of the token. Hashes are compared instead of tokens, because the duration of
    /// this comparison reveals nothing about the token.
    pub(crate) token: Option<[u8; 32]>,
    pub(crate) hosts: Vec<String>,
    pub(crate) allows_writes: bool,
    pub(crate) agent: Option<Agent>,
    pub(crate) runs: Option<DetachedRunsLayer>,
    /// The path under which the pages are nested, without a slash at the end.
    pub(crate) path: String,
    /// The named replay policies for the page that shows the next request to the model.
    pub(crate) policies: Vec<(String, ReplayPolicy)>,
    pub(crate) followers: Arc<Followers>,
    /// Limits the requests that read a whole conversation, because each needs memory for it.
    pub(crate) page_permits: Arc<Semaphore>,
}

/// The scopes that a reader can see. A *scope* is a group of conversations, such as those of one
/// user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scopes {
    /// Every scope. The first page lists the scopes, and each other page shows data of one scope.
    Any,
    /// Every scope. The first page lists the conversations of all scopes.
    All,
    One(String),
}

/// Serving the pages failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not a loopback address, and [`Inspector::with_token`] was not called.
    #[error(
        "the pages are not served, because other machines can reach {address} and no token is set: \
         listen on 127.0.0.1, or set a token"
    )]
    TokenNeeded {
        /// The address.
        address: SocketAddr,
    },
    /// Reading the local address of the listener failed.
    #[error("serving the pages failed")]
    Io(#[from] io::Error),
}

impl Inspector {
    /// Creates the pages for a store. By default, a request is only served if its header `Host`
    /// names a loopback host, and each page shows data of one scope.
    pub fn new(store: impl HistoryStore) -> Self {
        Self {
            store: Arc::new(store),
            scopes: Scopes::Any,
            token: None,
            hosts: Vec::new(),
            allows_writes: false,
            agent: None,
            runs: None,
            path: String::new(),
            policies: vec![("default".to_owned(), ReplayPolicy::default())],
            followers: Arc::new(Followers::new()),
            page_permits: Arc::new(Semaphore::new(MAX_WHOLE_PAGES)),
        }
    }

    /// Restricts the pages to one scope. Requests for other scopes are refused.
    #[must_use]
    pub fn in_one_scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes = Scopes::One(scope.into());
        self
    }

    /// Lists the conversations of all scopes on the first page, instead of the scopes.
    #[must_use]
    pub fn with_all_scopes(mut self) -> Self {
        self.scopes = Scopes::All;
        self
    }

    /// Sets the token that every request must contain.
    #[must_use]
    pub fn with_token(mut self, token: impl AsRef<[u8]>) -> Self {
        self.token = Some(Sha256::digest(token.as_ref()).into());
        self
    }

    /// Accepts requests to these hosts, besides loopback hosts. A host has the form of the header
    /// `Host`: `agents.example`, or `agents.example:8443`.
    #[must_use]
    pub fn with_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host.into().to_ascii_lowercase()));
        self
    }

    /// Sets whether readers can end open runs, whose messages are stored but are not part of the
    /// history yet. If an [agent](Self::with_agent) is set, readers can then also approve and
    /// reject calls. The default is `false`.
    #[must_use]
    pub fn with_writes(mut self, allowed: bool) -> Self {
        self.allows_writes = allowed;
        self
    }

    /// Sets the tower stack that has the tools. If [writes](Self::with_writes) are allowed, readers
    /// can then approve or reject calls in the pages. The inspector calls the stack with the
    /// decisions, and the stack continues the run. The run finishes even if the reader closes the
    /// page.
    #[must_use]
    pub fn with_agent<S>(mut self, agent: S) -> Self
    where
        S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        self.agent = Some(BoxCloneSyncService::new(agent.map_err(Into::into)));
        self
    }

    /// Sets the layer that executes the runs of the application in separate tasks. The page of a
    /// conversation then shows the answer of the open run while the model generates it. The
    /// inspector reads the answer from the update log of the layer, and does not write to the log.
    /// In a process that does not execute the runs, pass another layer that uses the update log of
    /// the application.
    #[must_use]
    pub fn with_runs(mut self, runs: DetachedRunsLayer) -> Self {
        self.runs = Some(runs);
        self
    }

    /// Sets the path under which an application nests the router, such as `/inspector`. The links
    /// in the pages begin with this path.
    #[must_use]
    pub fn at_path(mut self, path: impl AsRef<str>) -> Self {
        self.path = path.as_ref().trim_end_matches('/').to_owned();
        self
    }

    /// Adds a replay policy with a name, for the page that shows the next request to the model. The
    /// policy determines in which form the request contains the stored messages. Removes an earlier
    /// policy with the name `default`, such as the one that [`new`](Self::new) adds.
    #[must_use]
    pub fn with_policy(mut self, name: impl Into<String>, policy: ReplayPolicy) -> Self {
        self.policies.retain(|(name, _)| name != "default");
        self.policies.push((name.into(), policy));
        self
    }

    /// Converts the inspector to an axum router.
    pub fn into_router(self) -> Router {
        let inspector = Arc::new(self);
        Router::new()
            .route("/", get(pages::directory))
            .route("/conversation", get(pages::conversation))
            .route("/message", get(pages::message))
            .route("/next", get(pages::next))
            .route("/tools", get(pages::tools))
            .route("/usage", get(pages::usage))
            .route("/runs", get(pages::runs))
            .route("/runs/end", post(pages::end_run))
            .route("/runs/decide", post(pages::decide))
            .route("/changes", get(live::changes))
            .route("/style.css", get(pages::style))
            .route("/inspector.js", get(pages::script))
            .fallback(pages::missing)
            .layer(middleware::from_fn_with_state(inspector.clone(), guard::guard))
            .with_state(inspector)
    }

    /// Serves the pages until `shutdown` completes. The server then waits up to 3 seconds for
    /// responses in flight, and closes the remaining connections.
    ///
    /// Without a [token](Self::with_token), the address of the listener must be a loopback address.
    /// Every user and every program of the machine can then read the pages, even those that have no
    /// permission to read the file of the store.
    ///
    /// # Errors
    ///
    /// Returns [`ServeError::TokenNeeded`] if no token is set and the address of the listener is
    /// not a loopback address, and [`ServeError::Io`] if this address cannot be read.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() && self.token.is_none() {
            return Err(ServeError::TokenNeeded { address });
        }
        let followers = self.followers.clone();
        let router = self.into_router();
        let shutdown = async move {
            shutdown.await;
            // The event streams of open pages would otherwise delay the shutdown.
            followers.close();
        };
        serving::serve(listener, router, shutdown).await;
        Ok(())
    }
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scopes, hosts, allows_writes, path, .. } = self;
        f.debug_struct("Inspector")
            .field("scopes", scopes)
            .field("hosts", hosts)
            .field("allows_writes", allows_writes)
            .field("path", path)
            .finish_non_exhaustive()
    }
}
