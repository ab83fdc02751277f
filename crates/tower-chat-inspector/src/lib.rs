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
//! - a request that a page of another origin makes a browser send is refused (`Origin`,
//!   `Sec-Fetch-Site`), a link on such a page too: readers type the address, or open it from a bookmark or
//!   a terminal. No page of another origin can embed the pages or keep a handle of their window;
//! - with [`Inspector::with_token`] it must have the token, as `Authorization: Bearer TOKEN`, or once as
//!   the parameter `token` of a page, which a cookie remembers. [`Inspector::serve`] refuses to listen
//!   beyond the loopback without one. On the loopback without one, every user and every program of the
//!   machine reads the pages, whatever the permissions of the store are. A browser sends the cookies of
//!   a host to all of its ports, so it must not open pages that other users of the machine serve;
//! - nothing is changed unless [`Inspector::with_writes`] allows it, and then only by forms of the pages
//!   themselves;
//! - a call is approved in a page only if the page shows all of its arguments, and only the call that it
//!   showed;
//! - the pages show one scope at a time, unless [`Inspector::with_all_scopes`] or
//!   [`Inspector::in_one_scope`] says otherwise.
//!
//! Every stored text is escaped, characters that cannot be seen are written as escapes, and the content
//! security policy allows no script or style but the two files of the pages.
//!
//! # How much it reads
//!
//! A page reads and shows a bounded number of messages, calls and bytes of each, and links to the rest; counts
//! of tools and usage are made in the store. Two pages read more: a message that is shown whole, and
//! what the model is sent next, which depends on the whole conversation. An open run is read whole too.
//! At most 16 pages of one address, and 64 in all, follow a conversation at the same time; a router that an
//! application serves knows the addresses from axum's `ConnectInfo`. Behind a proxy, all readers have the address of
//! the proxy.

mod guard;
mod inspector;
mod live;
mod pages;
mod serving;
mod view;

pub use self::inspector::{Inspector, ServeError};
