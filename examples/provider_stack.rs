//! A model client with ordinary layers: a trace, expiring tokens, a rate limit and a retry. The
//! example shows the position of the retry in a stack that stores every service call.
//!
//! ```text
//! cargo run -p tower-chat-providers --example provider_stack
//! ```
//!
//! The program needs no key, since it starts a server on this machine. In each run, after a tool
//! has run, the server rejects one request as overloaded. The server reports the remaining rate
//! limit in its headers. The trace is written to standard error.

mod unreliable_server;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt, retry::RetryLayer};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, HistoryStore, MemoryStore,
    PersistenceMode, ToolDefinition, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    tool_fn,
};
use tower_chat_providers::{
    FullBodyLayer, OpenAiChat, ProviderError, ReqwestTransport,
    auth::{AuthHeader, AuthLayer, Token, TokenSource},
    rate_limit::RateLimitLayer,
    retry::RetryPolicy,
};
use tower_chat_testkit::FaultyStore;
use tower_http::trace::TraceLayer;

use unreliable_server::UnreliableServer;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr);
    subscriber.with_max_level(tracing::Level::DEBUG).init();

    let policy = RetryPolicy::new()
        .with_max_attempts(3)
        .with_backoff(Duration::from_millis(10), Duration::from_secs(5))
        .with_deadline(Duration::from_secs(30));
    let retry = RetryLayer::new(policy);

    // Right: the retry is below the persister (the layer that stores every service call). The
    // persister receives one service call, and stores the tool result and the answer once. It does
    // not receive the failed attempts.
    let (server, store) = (UnreliableServer::start().await?, counting_store());
    let stack = ServiceBuilder::new()
        .layer(PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoopLayer::new(Tools::new().with(order_status())))
        .layer(PerServiceCallPersistence::new(store.clone()))
        .layer(retry.clone())
        .service(client(&server.url)?);
    report("retry under the persister", stack, &server, &store).await?;

    // Wrong: the retry is above the persister. The persister receives each attempt as its own
    // service call. It stores the tool result after the failed attempt, and submits it again after
    // the next attempt. The history is correct in both stacks, because the store recognises the
    // repeated message by its id. But here each attempt needs a write.
    let (server, store) = (UnreliableServer::start().await?, counting_store());
    let stack = ServiceBuilder::new()
        .layer(PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoopLayer::new(Tools::new().with(order_status())))
        .layer(retry)
        .layer(PerServiceCallPersistence::new(store.clone()))
        .service(client(&server.url)?);
    report("retry over the persister", stack, &server, &store).await?;
    Ok(())
}

/// Creates a model client over HTTP layers.
fn client(
    url: &str,
) -> Result<
    impl Service<ChatRequest, Response = ChatResponse, Error = ProviderError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static,
    ProviderError,
> {
    let transport = ServiceBuilder::new()
        .layer(RateLimitLayer::new(4))
        // Each attempt waits for the rate limit, and then gets its token, which cannot expire
        // during the wait.
        .layer(AuthLayer::from_source(AuthHeader::Bearer, short_lived_tokens()))
        // The trace shows each request as it is sent, but not the tokens: the headers with tokens
        // are marked as sensitive.
        .layer(FullBodyLayer::new())
        .layer(TraceLayer::new_for_http())
        .service(ReqwestTransport::new()?);
    Ok(OpenAiChat::compatible_over(url, transport).with_model("script"))
}

/// Returns a source of tokens that expire at once, so that each request needs a new token.
fn short_lived_tokens() -> impl TokenSource {
    let count = AtomicU32::new(0);
    move || {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let token = Token::new(format!("token-{number}")).expires_at(SystemTime::now());
        std::future::ready(Ok::<_, BoxError>(token))
    }
}

fn order_status() -> impl tower_chat::Tool {
    let definition = ToolDefinition::new(
        "order_status",
        "Where an order is.",
        json!({
            "type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"],
        }),
    );
    tool_fn(definition, |_| async { Ok("Order 7 is on its way.") })
}

fn counting_store() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::new())
}

async fn report<S>(
    name: &str,
    mut stack: S,
    server: &UnreliableServer,
    store: &FaultyStore<MemoryStore>,
) -> Result<(), BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse, Error = BoxError>,
{
    let key = ConversationKey::new("alice", "orders");
    let request = ChatRequest::user("Where is my order 7?").in_conversation(key.clone());
    let answer = stack.ready().await?.call(request).await?.collect().await?;
    let requests = server.requests();
    let sent: Vec<String> =
        requests.iter().map(|request| format!("{} {}", request.token, request.status)).collect();
    println!("{name}: {}", answer.text());
    println!("  requests: {}", sent.join(", "));
    let stored = store.load(&key).await?.messages.len();
    println!("  {stored} messages stored by {} submissions", store.appends());
    Ok(())
}
