//! For people who operate or debug an agent: web pages that show what is in a tower-chat store.
//!
//! The pages list conversations by their last activity, show one as a timeline of its runs with their
//! tool calls side by side, say what a model is sent of each stored message and why, sum up tools and
//! usage, and list open runs. They need no JavaScript; with it, a page follows a run that is under way.
//!
//! ```no_run
//! # async fn run(store: tower_chat::MemoryStore) -> Result<(), Box<dyn std::error::Error>> {
//! use tower_chat_inspector::Inspector;
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
//! Inspector::new(store).serve(listener, std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # In an application
//!
//! [`Inspector::into_router`] is an axum router, to be nested under the path that the inspector is told:
//!
//! ```
//! use axum::Router;
//! use tower_chat::MemoryStore;
//! use tower_chat_inspector::Inspector;
//!
//! let inspector = Inspector::new(MemoryStore::new()).at_path("/inspector");
//! let app: Router = Router::new().nest("/inspector", inspector.into_router());
//! # let _ = app;
//! ```
//!
//! # Who may look
//!
//! Whoever reaches the pages reads every conversation of the store, so:
//!
//! - a request must name a host of the loopback, or one of [`Inspector::with_hosts`]: a page of
//!   another site that resolves its name to this address gets nothing;
//! - with [`Inspector::with_token`] it must have the token, as `Authorization: Bearer TOKEN`, or once as
//!   the parameter `token` of a page, which a cookie remembers. [`Inspector::serve`] refuses to listen
//!   beyond the loopback without one;
//! - nothing is changed unless [`Inspector::with_writes`] allows it, and then only by forms of the pages
//!   themselves (`Origin`, `Sec-Fetch-Site`);
//! - the pages show one scope at a time, unless [`Inspector::with_all_scopes`] or
//!   [`Inspector::in_one_scope`] says otherwise.
//!
//! Every stored text is escaped, characters that cannot be seen are written as escapes, and the content
//! security policy allows no script or style but the two files of the pages.

mod guard;
mod inspector;
mod live;
mod pages;
mod view;

pub use self::inspector::{Inspector, ServeError};
