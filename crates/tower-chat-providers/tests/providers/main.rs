//! Clients of every provider, over a real HTTP server.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test fails by panicking"
)]

mod auth;
mod basics;
mod server;

use tower_chat_core::{Answer, BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

/// The answer to a request, whole or streamed, of a client that was polled to readiness.
pub(crate) async fn ask<S>(client: &mut S, request: ChatRequest) -> Result<Answer, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse, Error: Into<BoxError>>,
{
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.map_err(Into::into)?;
    client.call(request).await.map_err(Into::into)?.collect().await
}
