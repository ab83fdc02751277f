//! The owner of a conversation's history, as named in requests and responses.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The owner of a conversation's history: a layer below, or the service. If the caller itself owns
/// the history, requests and responses have no `HistoryOwner`.
///
/// The conversation itself is identified by a [`ConversationKey`](crate::ConversationKey).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryOwner {
    /// A mark (the sentinel) that a tool loop adds to a request that contains only the new
    /// messages. A layer below the tool loop adds the history.
    ///
    /// The sentinel is never sent to a model or to the caller, and is never stored. If no layer
    /// has added the history, the model client receives the sentinel, and
    /// [`ChatRequest::service_id`](crate::ChatRequest::service_id) returns an error.
    #[serde(rename = "local_history")]
    Local,
    /// The service stores the history under this id (OpenAI Responses and Conversations).
    Service(Arc<str>),
}

impl HistoryOwner {
    /// Returns the service's id, or `None` for the sentinel.
    pub fn service_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Local => None,
            Self::Service(id) => Some(id),
        }
    }
}
