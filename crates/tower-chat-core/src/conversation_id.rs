//! Who keeps the history of a conversation, as requests and responses say it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The conversation id on a request or response: who keeps the history above or below this point.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationId {
    /// The sentinel: a layer below keeps the history, so a tool loop sends only what is new.
    ///
    /// It never reaches a model or the caller, and is never stored;
    /// [`ChatRequest::service_id`](crate::ChatRequest::service_id) refuses it at a model client.
    LocalHistory,
    /// The service keeps the history itself, under this id (OpenAI Responses and Conversations).
    Service(Arc<str>),
}

impl ConversationId {
    /// The service's id, or `None` for the sentinel.
    pub fn service_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::LocalHistory => None,
            Self::Service(id) => Some(id),
        }
    }
}
