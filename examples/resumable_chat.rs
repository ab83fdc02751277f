//! A chat in the browser with a stop button. An answer in progress survives a reload of the page.
//!
//! ```text
//! cargo run -p tower-chat-http --example resumable_chat [ADDRESS] [DATABASE]
//! ```
//!
//! The program serves a page and the endpoint. The run of an answer continues when the page
//! disconnects:
//!
//! - A reloaded page, and another tab, show the whole answer.
//! - After a lost connection, the page reconnects and receives the events that it missed.
//! - After a crash of the server, the page sends its request again. The new server resumes the run.
//!
//! The model is a function in this file.

mod program;

use std::time::Duration;

use axum::{response::Html, routing::get};
use futures_util::{StreamExt, stream};
use tokio::net::TcpListener;
use tower::{Layer, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, Finish, HistoryStore,
    PersistenceMode, PersistencePolicy, policy::ConcurrentRuns,
};
use tower_chat_delivery::{DetachedRunsLayer, SqliteUpdateLog};
use tower_chat_http::ChatEndpoint;
use tower_chat_sqlite::SqliteStore;

use program::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let [address, database] = program::arguments(
        "resumable_chat [ADDRESS] [DATABASE]",
        ["127.0.0.1:8080", "resumable_chat.db"],
    );

    let store = SqliteStore::open(&database).await?;
    // A new process can take over a run only when the lease of the dead process has expired. The
    // request that resumes the run waits in this queue until then.
    let policy =
        PersistencePolicy::default().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 1 });
    let pipeline = ChatPipeline::builder(service_fn(model))
        .history(store.clone())
        .persistence(PersistenceMode::Journaled)
        .policy(policy)
        .build()?;
    let runs = DetachedRunsLayer::new(SqliteUpdateLog::open(format!("{database}-updates")).await?);
    let endpoint = ChatEndpoint::new(runs.layer(pipeline), store.clone())
        .with_runs(runs.clone())
        .in_one_scope("me");
    let page = get(|| async { Html(include_str!("resumable_chat.html")) });

    let listener = TcpListener::bind(&address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, endpoint.into_router().route("/", page))
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    runs.drained().await;
    store.close().await?;
    println!("closed");
    Ok(())
}

/// Counts to 20, slowly.
async fn model(_: ChatRequest) -> Result<ChatResponse, BoxError> {
    let words = stream::iter(1..=20).then(|number| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(ChatUpdate::TextDelta(format!("{number} ")))
    });
    let finish = stream::iter([Ok(ChatUpdate::Finish(Finish::stop().into()))]);
    Ok(ChatResponse::stream(words.chain(finish)))
}
