//! Web pages that show the content of a tower-chat store, for the operation and the debugging of an
//! agent.
//!
//! The pages list the conversations, the most recently active first, and the open runs, whose
//! messages are stored but are not part of the history yet. The page of a conversation is a
//! timeline of its runs, with a chart of parallel tool calls. Another page shows, for each stored
//! message, the form in which the next request to the model contains it, and the reasons for every
//! difference. Two pages show the statistics of tools and of usage.
//!
//! The pages work without JavaScript. With JavaScript, the page of a conversation updates itself
//! during a run. If [`Inspector::with_runs`] is set, that page also shows the answer while the
//! model generates it.
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
//! [`Inspector::into_router`] returns an axum router. Nest the router under the path that was
//! passed to [`Inspector::at_path`]:
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
//! A client whose requests are served can read every conversation of the store. Access is therefore
//! restricted:
//!
//! - The header `Host` of a request must name a loopback host or a host of
//!   [`Inspector::with_hosts`]. This check prevents DNS rebinding, in which the page of an attacker
//!   sends requests after the host name of the page was changed to resolve to the inspector's
//!   address.
//! - A request is refused if the header `Origin` or `Sec-Fetch-Site` reports that a page of another
//!   origin has caused the request. A link on such a page therefore does not work: readers type the
//!   address, or open it from a bookmark or a terminal. A page of another origin can neither embed
//!   the pages nor use a reference to their window.
//! - With [`Inspector::with_token`], each request must contain the token in the header
//!   `Authorization: Bearer TOKEN`, or a cookie. A reader obtains the cookie by opening a page once
//!   with the query parameter `token`. A browser sends the cookies of a host to all ports of the
//!   host. Therefore do not use the same browser for pages that other users of the machine serve.
//! - Without a token, [`Inspector::serve`] refuses to listen on addresses other than loopback.
//!   Every user and every program of the machine can then read the pages, even those that have no
//!   permission to read the file of the store.
//! - The inspector changes the store only if [`Inspector::with_writes`] allows it, and only after a
//!   reader has sent a form of a page.
//! - A reader can approve a call only on a page that shows the arguments of the call completely.
//!   The approval applies only to the call that this page showed, and not to another call with the
//!   same id.
//! - A page shows data of one scope, which is a group of conversations, such as those of one user.
//!   With [`Inspector::with_all_scopes`], one page lists the conversations of all scopes. With
//!   [`Inspector::in_one_scope`], requests for other scopes are refused.
//!
//! The pages escape every stored text as HTML, and show invisible characters as escape sequences.
//! The content security policy allows only the inspector's own script and style sheet.
//!
//! # Limits
//!
//! A page reads and shows a limited number of messages and calls, and a limited number of bytes of
//! each of them. Links lead to the remaining data. The store computes the statistics of tools and
//! of usage. Some pages read more: the page of a single message reads the whole message, the page
//! of the next request reads the whole conversation, and a page that shows an open run reads all
//! messages of this run.
//!
//! At most 64 pages receive live updates at the same time, and at most 16 from one network address.
//! If an application serves the router, the address is that of axum's `ConnectInfo`. Behind a
//! proxy, all readers have the address of the proxy.

mod guard;
mod inspector;
mod live;
mod live_text;
mod pages;
mod serving;
mod view;

pub use self::inspector::{Inspector, ServeError};
