//! A model client among ordinary layers: a trace, tokens that expire, a rate limit and a retry; and
//! where the retry belongs in a stack that stores every service call.
//!
//! ```text
//! cargo run -p tower-chat-providers --example provider_stack
//! ```
//!
//! It needs no key: it talks to a server on this machine that it starts itself. The server is
//! overloaded once in each run, after a tool has run, and says in its headers what is left of its
//! rate limit. The trace goes to standard error.

mod unreliable_server;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt, retry::RetryLayer};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, MemoryStore, PerRunPersistence,
    PerServiceCallPersistence, PersistenceMode, ToolDefinition, ToolLoop, Tools,
    store::HistoryStore, tool_fn,
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

    // Right. The persister sees one call: it stores the answer and the tool's result, once. Attempts
    // that failed are the retry's own affair, and a later attempt is sent what the first one was.
    let (server, store) = (UnreliableServer::start().await?, counting_store());
    let stack = ServiceBuilder::new()
        .layer(PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoop::new(Tools::new().with(order_status())))
        .layer(PerServiceCallPersistence::new(store.clone()))
        .layer(retry.clone())
        .service(client(&server.url)?);
    report("retry under the persister", stack, &server, &store).await?;

    // Wrong. The persister sees each attempt as a service call: the one that fails has it store the
    // tool's result, so that it is not lost with the run, and the next one has it store again. The
    // history is right in the end, as the call has one number, but each attempt pays for a write.
    let (server, store) = (UnreliableServer::start().await?, counting_store());
    let stack = ServiceBuilder::new()
        .layer(PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoop::new(Tools::new().with(order_status())))
        .layer(retry)
        .layer(PerServiceCallPersistence::new(store.clone()))
        .service(client(&server.url)?);
    report("retry over the persister", stack, &server, &store).await?;
    Ok(())
}

/// A client over layers of HTTP.
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
        // Beneath the retry, so that each attempt waits for its turn.
        .layer(RateLimitLayer::new(4))
        // Beneath the rate limit, so that no token expires while a call waits.
        .layer(AuthLayer::from_source(AuthHeader::Bearer, short_lived_tokens()))
        // Next to the transport, so that the trace shows each request as it is sent. It marks tokens
        // as sensitive and does not show them.
        .layer(FullBodyLayer::new())
        .layer(TraceLayer::new_for_http())
        .service(ReqwestTransport::new()?);
    Ok(OpenAiChat::compatible_over(url, transport).with_model("script"))
}

/// Tokens that expire as soon as they were sent, so that each request has to fetch one.
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

/// A store that counts what is submitted to it.
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
