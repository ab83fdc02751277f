//! Web pages that show the content of a tower-chat store, for operating and debugging an agent.
//!
//! The pages list conversations by their last activity, and open runs. A conversation is shown as a
//! timeline of its runs, with parallel tool calls side by side. Other pages show in which form a model
//! is sent each stored message, with the reasons, and the statistics of tools and usage. The pages work
//! without JavaScript; with it, the page of a conversation updates itself while a run is in flight, and
//! with [`Inspector::with_runs`] shows the text of an answer while the model writes it.
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
//! [`Inspector::into_router`] returns an axum router. Nest it under the path that [`Inspector::at_path`]
//! sets:
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
//! # Access
//!
//! A client that can reach the pages can read every conversation of the store. Therefore:
//!
//! - The `Host` of a request must be a loopback host or one of [`Inspector::with_hosts`]. The check
//!   prevents DNS rebinding: a page of another site whose host name resolves to this address is refused.
//! - A request that a page of another origin has caused is refused (`Origin`, `Sec-Fetch-Site`), also if
//!   it comes from a link on such a page. Readers type the address, or open it from a bookmark or a
//!   terminal. A page of another origin can neither embed the pages nor keep a reference to their
//!   window.
//! - With [`Inspector::with_token`], each request must have the token: as `Authorization: Bearer TOKEN`,
//!   or once as the parameter `token` of a page, which then sets a cookie. Without a token,
//!   [`Inspector::serve`] refuses to listen on addresses other than loopback. On loopback without a
//!   token, every user and every program of the machine can read the pages, regardless of the file
//!   permissions of the store. A browser sends the cookies of a host to all of its ports. Do not open
//!   pages that other users of the machine serve in the same browser.
//! - The pages change the store only if [`Inspector::with_writes`] allows it, and only through forms of
//!   the pages.
//! - A page can approve a call only if it shows all of the call's arguments, and the approval applies
//!   only to the call that the page showed.
//! - The pages show one scope at a time, unless [`Inspector::with_all_scopes`] or
//!   [`Inspector::in_one_scope`] is set.
//!
//! Every stored text is escaped, and invisible characters are written as escape sequences. The content
//! security policy allows only the script file and the style file of the pages.
//!
//! # Limits
//!
//! A page reads and shows a limited number of messages and calls, and a limited number of bytes of each,
//! with links to the rest. The store computes the statistics of tools and usage. Three pages read more:
//! a whole message, the messages that a model is sent next, which depend on the whole conversation, and
//! an open run. At most 16 pages of one address, and 64 in all, follow a conversation at the same time.
//! A router that an application serves finds the address in axum's `ConnectInfo`. Behind a proxy, all
//! readers have the address of the proxy.

mod guard;
mod inspector;
mod live;
mod live_text;
mod pages;
mod serving;
mod view;

pub use self::inspector::{Inspector, ServeError};
