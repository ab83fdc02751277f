//! The server for the tests in a browser. The server sends the page of the example `resumable_chat`
//! and executes journaled runs. The model sends one word for each line that the test writes to
//! standard input.
//!
//! Prints the address of the server, and then the line `asked` for each request to the model.

use std::sync::Arc;

use axum::{response::Html, routing::get};
use futures_util::{StreamExt, stream};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    sync::Semaphore,
};
use tower::{Layer, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, Finish, PersistenceMode,
    PersistencePolicy, ToolDefinition, Tools,
    policy::ConcurrentRuns,
    request::{FinishReason, ToolCallDelta},
    tool_fn,
};
use tower_chat_delivery::{DetachedRunsLayer, SqliteUpdateLog};
use tower_chat_http::ChatEndpoint;
use tower_chat_sqlite::SqliteStore;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let database = std::env::args().nth(1).ok_or("usage: browser_server DATABASE")?;
    let words = Arc::new(Semaphore::new(0));
    let model = {
        let words = words.clone();
        service_fn(move |request| {
            let words = words.clone();
            async move { Ok::<_, BoxError>(answer(&request, words)) }
        })
    };
    let definition = ToolDefinition::new("weather", "", serde_json::json!({"type": "object"}));
    let weather = tool_fn(definition, |_| async { Ok("Rain.".to_owned()) });
    let store = SqliteStore::open(&database).await?;
    let policy =
        PersistencePolicy::default().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 1 });
    let pipeline = ChatPipeline::builder(model)
        .tools(Tools::new().with(weather))
        .history(store.clone())
        .persistence(PersistenceMode::Journaled)
        .policy(policy)
        .build()?;
    let runs = DetachedRunsLayer::new(SqliteUpdateLog::open(format!("{database}-updates")).await?);
    let endpoint =
        ChatEndpoint::new(runs.layer(pipeline), store).with_runs(runs).in_one_scope("me");
    let page = include_str!("../../../../../examples/resumable_chat.html");
    let router = endpoint.into_router().route("/", get(async move || Html(page)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        words.add_permits(1);
    }
    Ok(())
}

/// Returns an answer that calls the tool, or the final answer if the request contains a result.
fn answer(request: &ChatRequest, words: Arc<Semaphore>) -> ChatResponse {
    println!("asked");
    let has_result = request.messages().iter().any(|message| message.results().next().is_some());
    let (texts, end) = match has_result {
        false => (["Let me ", "look."], vec![call(), finish(FinishReason::ToolCalls)]),
        true => (["It ", "rains."], vec![finish(FinishReason::Stop)]),
    };
    let words = stream::iter(texts).then(move |text| {
        let words = words.clone();
        async move {
            words.acquire().await?.forget();
            Ok(ChatUpdate::TextDelta(text.to_owned()))
        }
    });
    ChatResponse::stream(words.chain(stream::iter(end)))
}

fn call() -> Result<ChatUpdate, BoxError> {
    let call = ToolCallDelta::new(0, "{}").with_id("c1").with_name("weather");
    Ok(ChatUpdate::ToolCallDelta(call))
}

fn finish(reason: FinishReason) -> Result<ChatUpdate, BoxError> {
    Ok(ChatUpdate::Finish(Finish::new(reason).into()))
}
