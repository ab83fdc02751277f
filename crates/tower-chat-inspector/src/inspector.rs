//! The configuration of the pages.

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

/// The largest number of pages that read a whole conversation at the same time.
const MAX_WHOLE_PAGES: usize = 2;

/// The stack that continues runs.
pub(crate) type Agent = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// Web pages that show a store. The documentation of the [crate] describes them.
#[derive(Clone)]
pub struct Inspector {
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) scopes: Scopes,
    /// The SHA-256 hash of the token, so that the time of a comparison reveals nothing about the token.
    pub(crate) token: Option<[u8; 32]>,
    pub(crate) hosts: Vec<String>,
    pub(crate) allows_writes: bool,
    pub(crate) agent: Option<Agent>,
    pub(crate) runs: Option<DetachedRunsLayer>,
    /// The path of the pages, without a slash at its end.
    pub(crate) path: String,
    /// The replay policies, with their names.
    pub(crate) policies: Vec<(String, ReplayPolicy)>,
    pub(crate) followers: Arc<Followers>,
    /// Limits the number of pages that read a whole conversation at the same time, and thereby the used
    /// memory.
    pub(crate) page_permits: Arc<Semaphore>,
}

/// The scopes that the pages show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scopes {
    /// Every scope, one at a time.
    Any,
    /// Every scope, and lists over all of them.
    All,
    One(String),
}

/// Serving the pages failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines can reach the address, and there is no token.
    #[error(
        "the pages are not served: other machines can reach {address}, and there is no token: \
         listen on 127.0.0.1, or set a token"
    )]
    TokenNeeded {
        /// The address.
        address: SocketAddr,
    },
    /// The address of the listener cannot be read.
    #[error("serving the pages failed")]
    Io(#[from] io::Error),
}

impl Inspector {
    /// Creates the pages for a store. By default they are served to this machine only, and show one
    /// scope at a time.
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

    /// Restricts the pages to one scope.
    #[must_use]
    pub fn in_one_scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes = Scopes::One(scope.into());
        self
    }

    /// Adds lists of the conversations of all scopes.
    #[must_use]
    pub fn with_all_scopes(mut self) -> Self {
        self.scopes = Scopes::All;
        self
    }

    /// Sets the token that every request must have.
    #[must_use]
    pub fn with_token(mut self, token: impl AsRef<[u8]>) -> Self {
        self.token = Some(Sha256::digest(token.as_ref()).into());
        self
    }

    /// Adds hosts under which the pages can be reached, in the form of the header `Host`:
    /// `agents.example`, or `agents.example:8443`.
    #[must_use]
    pub fn with_hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host.into().to_ascii_lowercase()));
        self
    }

    /// Sets whether open runs can be ended in the pages, and, if there is an [agent](Self::with_agent),
    /// whether calls can be approved or rejected. The default is `false`.
    #[must_use]
    pub fn with_writes(mut self, allowed: bool) -> Self {
        self.allows_writes = allowed;
        self
    }

    /// Sets the stack with the tools. If writes are allowed, readers can then decide in the pages about
    /// calls that wait for approval. The decision is sent through the stack, which continues the run.
    /// The run finishes even if the reader closes the page.
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

    /// Sets the layer that detaches the runs of the application, or one with the same update log. The page of
    /// a conversation then shows the text of the open run's answer while the model writes it. The pages never
    /// write to the log.
    #[must_use]
    pub fn with_runs(mut self, runs: DetachedRunsLayer) -> Self {
        self.runs = Some(runs);
        self
    }

    /// Sets the path under which an application nests the pages, such as `/inspector`.
    #[must_use]
    pub fn at_path(mut self, path: impl AsRef<str>) -> Self {
        self.path = path.as_ref().trim_end_matches('/').to_owned();
        self
    }

    /// Adds a replay policy under a name, for the page with the messages that a model is sent next.
    /// Removes the policy with the name `default`, such as the one that [`new`](Self::new) adds.
    #[must_use]
    pub fn with_policy(mut self, name: impl Into<String>, policy: ReplayPolicy) -> Self {
        self.policies.retain(|(name, _)| name != "default");
        self.policies.push((name.into(), policy));
        self
    }

    /// Returns the pages as a router.
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

    /// Serves the pages until `shutdown` completes. Responses that are being sent have 3 seconds to
    /// finish; connections that are still open after that are closed.
    ///
    /// Without a [token](Self::with_token), the pages are served on loopback addresses only. Every user
    /// and every program of the machine can then read the pages, regardless of the file permissions of
    /// the store.
    ///
    /// # Errors
    ///
    /// [`ServeError`].
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
            // The event streams of followed conversations do not end by themselves.
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
