//! Determines whether the service stores the history, and the service id for the next request.
//!
//! The service id is the id of a response or of a conversation under which the service stores the
//! history.

use std::sync::Arc;

use tower_chat_core::HistoryOwner;

use crate::{
    AnswerError,
    object::{self, Object, as_text, text},
};

/// Where the service finds the history before the new messages of a request: in the request, or in
/// its own storage.
///
/// The location determines the fields `store`, `previous_response_id` and `conversation` of the
/// request, and the service id of the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryLocation {
    /// The request contains the history, and has `store: false`: the service does not store the
    /// response.
    #[default]
    Request,
    /// The conversation begins with this request, and the service stores the response.
    NewResponse,
    /// The conversation begins with this request, and the service stores the conversation under its
    /// own id. The client creates the conversation before it sends the request.
    NewConversation,
    /// The service stores the history, which ends with the response with this id.
    AfterResponse(Arc<str>),
    /// The service stores the history in the conversation with this id.
    InConversation(Arc<str>),
}

impl HistoryLocation {
    /// Returns the location for a service id. An id that begins with `conv_` is the id of a
    /// conversation of the Conversations API. Any other id is the id of a response.
    ///
    /// ```
    /// use tower_chat_wire::openai_responses::HistoryLocation;
    /// let location = HistoryLocation::of_service_id("conv_1".into());
    /// assert_eq!(location, HistoryLocation::InConversation("conv_1".into()));
    /// ```
    pub fn of_service_id(id: Arc<str>) -> Self {
        if id.starts_with("conv_") { Self::InConversation(id) } else { Self::AfterResponse(id) }
    }

    /// Returns the service id of the history up to and including a response, if it is stored.
    pub(super) fn service_id_after(&self, response: &Object) -> Option<HistoryOwner> {
        let id = match self {
            Self::Request => return None,
            Self::InConversation(id) => id.clone(),
            Self::NewResponse | Self::NewConversation | Self::AfterResponse(_) => {
                storage_id(response)?.into()
            }
        };
        Some(HistoryOwner::Service(id))
    }

    /// Returns the service id while a response is in progress. If the request continued another
    /// response, this is the id of that response, because the next request cannot continue a
    /// response in progress. Otherwise, it is the same as in
    /// [`service_id_after`](Self::service_id_after).
    pub(super) fn service_id_during(&self, response: &Object) -> Option<HistoryOwner> {
        match self {
            Self::AfterResponse(id) => Some(HistoryOwner::Service(id.clone())),
            Self::Request | Self::NewResponse | Self::NewConversation | Self::InConversation(_) => {
                self.service_id_after(response)
            }
        }
    }
}

/// Returns the conversation id of a response. If the response belongs to no conversation, returns
/// the id of the response, or `None` if the service has not stored it.
fn storage_id(response: &Object) -> Option<String> {
    let is_stored = response.get("store").is_none_or(|store| store.get() != "false");
    conversation(response).or_else(|| text(response, "id").filter(|_| is_stored))
}

/// Returns the service id of a response whose request is unknown: the conversation id of the
/// response, or the id of a stored response that continues another response.
pub(super) fn service_id_in(response: &Object) -> Option<HistoryOwner> {
    let has_previous_response = || text(response, "previous_response_id").is_some();
    let id = conversation(response)
        .or_else(|| storage_id(response).filter(|_| has_previous_response()))?;
    Some(HistoryOwner::Service(id.into()))
}

/// Returns the conversation id of a response.
fn conversation(response: &Object) -> Option<String> {
    let conversation = response.get("conversation")?;
    let fields = conversation.parse::<Object>().ok();
    fields.as_ref().map_or(as_text(conversation), |fields| text(fields, "id"))
}

/// Reads the id of a new conversation from the body of the response to `POST /conversations`.
///
/// # Errors
///
/// [`AnswerError::Malformed`], if the answer has no id.
///
/// ```
/// use tower_chat_wire::openai_responses::parse_conversation_id;
/// assert_eq!(parse_conversation_id(r#"{"id":"conv_1","object":"conversation"}"#)?, "conv_1");
/// # Ok::<(), tower_chat_wire::AnswerError>(())
/// ```
pub fn parse_conversation_id(body: &str) -> Result<String, AnswerError> {
    text(&object::parse(body)?, "id")
        .ok_or_else(|| AnswerError::malformed("the created conversation has no id", body))
}
