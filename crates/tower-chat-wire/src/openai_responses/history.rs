//! The place where the history before a request is stored, and the service id for the next request.

use std::sync::Arc;

use tower_chat_core::HistoryOwner;

use crate::{
    AnswerError,
    object::{self, Object, as_text, text},
};

/// The place where the history before a request is stored: in the request, or at the service.
///
/// The location determines the fields `store`, `previous_response_id` and `conversation` of the request,
/// and the service id of the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryLocation {
    /// In the request. The request has `store: false`.
    #[default]
    Request,
    /// The conversation begins with this request, and the service stores the response.
    NewResponse,
    /// The conversation begins with this request, and the service stores it with a conversation id. The
    /// client creates the conversation first.
    NewConversation,
    /// At the service, up to this response.
    AfterResponse(Arc<str>),
    /// At the service, in this conversation.
    InConversation(Arc<str>),
}

impl HistoryLocation {
    /// Returns the location for a service id: an id that begins with `conv_` is a conversation of the
    /// Conversations API, any other id is a response.
    ///
    /// ```
    /// use tower_chat_wire::openai_responses::HistoryLocation;
    /// let location = HistoryLocation::of_service_id("conv_1".into());
    /// assert_eq!(location, HistoryLocation::InConversation("conv_1".into()));
    /// ```
    pub fn of_service_id(id: Arc<str>) -> Self {
        if id.starts_with("conv_") { Self::InConversation(id) } else { Self::AfterResponse(id) }
    }

    /// Returns the service id of the history up to and including a response. `None` if the service has not
    /// stored the response, for example because the settings of an organisation forbid it.
    pub(super) fn after(&self, response: &Object) -> Option<HistoryOwner> {
        let id = match self {
            Self::Request => return None,
            Self::InConversation(id) => id.clone(),
            Self::NewResponse | Self::NewConversation | Self::AfterResponse(_) => {
                stored_under(response)?.into()
            }
        };
        Some(HistoryOwner::Service(id))
    }

    /// Returns the service id while a response is in progress. No request can continue from such a response
    /// yet, so the id is that of the previous response, if there is one.
    pub(super) fn before(&self, response: &Object) -> Option<HistoryOwner> {
        match self {
            Self::AfterResponse(id) => Some(HistoryOwner::Service(id.clone())),
            Self::Request | Self::NewResponse | Self::NewConversation | Self::InConversation(_) => {
                self.after(response)
            }
        }
    }
}

/// Returns the id of the conversation of a response, or else the response's own id. `None` if there is no
/// conversation and the service has not stored the response.
fn stored_under(response: &Object) -> Option<String> {
    let is_stored = response.get("store").is_none_or(|store| store.get() != "false");
    conversation(response).or_else(|| text(response, "id").filter(|_| is_stored))
}

/// Returns the service id from a response alone, without information about its request: the id of its
/// conversation, or its own id if it continues another response and is stored.
pub(super) fn named_by(response: &Object) -> Option<HistoryOwner> {
    let has_previous_response = || text(response, "previous_response_id").is_some();
    let id = conversation(response)
        .or_else(|| stored_under(response).filter(|_| has_previous_response()))?;
    Some(HistoryOwner::Service(id.into()))
}

/// Returns the id of the conversation of a response.
fn conversation(response: &Object) -> Option<String> {
    let conversation = response.get("conversation")?;
    let fields = conversation.parse::<Object>().ok();
    fields.as_ref().map_or(as_text(conversation), |fields| text(fields, "id"))
}

/// Reads the id in the service's answer to the creation of a conversation (`POST /conversations`).
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
