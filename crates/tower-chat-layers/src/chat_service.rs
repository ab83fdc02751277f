//! The bounds of the service below a layer.

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

/// A service below a layer.
pub(crate) trait ChatService:
    Service<ChatRequest, Response = ChatResponse, Error: Into<BoxError>, Future: Send> + Clone + Send
{
}

impl<S> ChatService for S where
    S: Service<ChatRequest, Response = ChatResponse, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
{
}
