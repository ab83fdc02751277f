//! A stack behind an HTTP endpoint. Any OpenAI SDK can call the endpoint, and the stack stores the
//! conversations.
//!
//! ```text
//! cargo run -p tower-chat-http --example endpoint [ADDRESS] [DATABASE]
//! curl http://127.0.0.1:8080/v1/chat/completions -H 'x-conversation-id: c1' \
//!     -d '{"messages": [{"role": "user", "content": "hello"}]}'
//! ```
//!
//! Ctrl-C stops the program after the runs in progress have ended. The model is a function in this
//! file. Any model client can replace it.

mod program;

use tokio::net::TcpListener;
use tower::service_fn;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, HistoryStore, Message,
    PersistenceMode, Role,
};
use tower_chat_http::ChatEndpoint;
use tower_chat_sqlite::SqliteStore;

use program::Failure;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let [address, database] =
        program::arguments("endpoint [ADDRESS] [DATABASE]", ["127.0.0.1:8080", "endpoint.db"]);

    let store = SqliteStore::open(&database).await?;
    let stack = ChatPipeline::builder(service_fn(model))
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()?;
    // This endpoint has one local user. A server for several users needs a layer that adds the
    // `Scope` of the user to each request.
    let endpoint = ChatEndpoint::new(stack, store.clone()).in_one_scope("me");

    let listener = TcpListener::bind(&address).await?;
    println!("http://{}/v1", listener.local_addr()?);
    axum::serve(listener, endpoint.into_router())
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    store.close().await?;
    println!("closed");
    Ok(())
}

async fn model(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let asked = request.messages().iter().filter(|message| message.role == Role::User).count();
    let answer = Message::assistant(format!("You have said {asked} things."));
    Ok(ChatResponse::whole([answer], Finish::stop()))
}
