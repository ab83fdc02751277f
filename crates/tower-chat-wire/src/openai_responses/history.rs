//! Where the history before a request is, and under which id it goes on.

use std::sync::Arc;

use tower_chat_core::HistoryOwner;

use crate::{
    AnswerError,
    object::{self, Object, as_text, text},
};

/// Where the history before one request is: in the request, or at the service.
///
/// It decides the fields `store`, `previous_response_id` and `conversation` of the request, and the
/// service id of its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryLocation {
    /// In the request. The service is told to store nothing.
    #[default]
    Request,
    /// The conversation begins with this request, and the service stores the response.
    NewResponse,
    /// The conversation begins with this request, and the service stores it under a conversation id,
    /// which the client creates first.
    NewConversation,
    /// At the service, up to this response.
    AfterResponse(Arc<str>),
    /// At the service, in this conversation.
    InConversation(Arc<str>),
}

impl HistoryLocation {
    /// The location that a service id names: an id that begins with `conv_` is that of
    /// a conversation of the Conversations API, any other that of a response.
    ///
    /// ```
    /// use tower_chat_wire::openai_responses::HistoryLocation;
    /// let location = HistoryLocation::of_service_id("conv_1".into());
    /// assert_eq!(location, HistoryLocation::InConversation("conv_1".into()));
    /// ```
    pub fn of_service_id(id: Arc<str>) -> Self {
        if id.starts_with("conv_") { Self::InConversation(id) } else { Self::AfterResponse(id) }
    }

    /// The id under which the service stores the history up to a response, by the response's fields;
    /// `None` if it stores nothing, such as where an organisation forbids it.
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

    /// The id while a response is not done: nothing can go on from it yet.
    pub(super) fn before(&self, response: &Object) -> Option<HistoryOwner> {
        match self {
            Self::AfterResponse(id) => Some(HistoryOwner::Service(id.clone())),
            Self::Request | Self::NewResponse | Self::NewConversation | Self::InConversation(_) => {
                self.after(response)
            }
        }
    }
}

/// The conversation of a response, or else its own id, unless the service did not store it.
fn stored_under(response: &Object) -> Option<String> {
    let is_stored = response.get("store").is_none_or(|store| store.get() != "false");
    conversation(response).or_else(|| text(response, "id").filter(|_| is_stored))
}

/// The id that a response's own fields name, where nothing is known of its request: its conversation,
/// or its own where it goes on from another response.
pub(super) fn named_by(response: &Object) -> Option<HistoryOwner> {
    let goes_on = || text(response, "previous_response_id").is_some();
    let id = conversation(response).or_else(|| stored_under(response).filter(|_| goes_on()))?;
    Some(HistoryOwner::Service(id.into()))
}

/// The conversation that a response belongs to.
fn conversation(response: &Object) -> Option<String> {
    let conversation = response.get("conversation")?;
    let fields = conversation.parse::<Object>().ok();
    fields.as_ref().map_or(as_text(conversation), |fields| text(fields, "id"))
}

/// The id in the service's answer to the creation of a conversation (`POST /conversations`).
///
/// # Errors
///
/// [`AnswerError::Malformed`], if it has none.
///
/// ```
/// use tower_chat_wire::openai_responses::parse_conversation_id;
/// assert_eq!(parse_conversation_id(r#"{"id":"conv_1","object":"conversation"}"#)?, "conv_1");
/// # Ok::<(), tower_chat_wire::AnswerError>(())
/// ```
pub fn parse_conversation_id(body: &str) -> Result<String, AnswerError> {
    text(&object::parse(body)?, "id")
        .ok_or_else(|| AnswerError::malformed("the conversation that was created has no id", body))
}
