//! Who keeps the history of a conversation, as requests and responses say it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Who keeps the history of the conversation that a request or a response belongs to, where it is not
/// the caller: a layer below, or the service.
///
/// The conversation itself is named by a [`ConversationKey`](crate::ConversationKey).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryOwner {
    /// The sentinel: a layer below keeps the history, so a tool loop sends only what is new.
    ///
    /// It never reaches a model or the caller, and is never stored;
    /// [`ChatRequest::service_id`](crate::ChatRequest::service_id) refuses it at a model client.
    #[serde(rename = "local_history")]
    Local,
    /// The service keeps the history itself, under this id (OpenAI Responses and Conversations).
    Service(Arc<str>),
}

impl HistoryOwner {
    /// The service's id, or `None` for the sentinel.
    pub fn service_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Local => None,
            Self::Service(id) => Some(id),
        }
    }
}
