//! Who keeps the history: the caller, or the service and under which id.

use std::sync::Arc;

use tower_chat_core::{ConversationId, RawJson};

use crate::object::{Object, as_text};

/// Who keeps the history of the conversations that begin at an
/// [`OpenAiResponses`](super::OpenAiResponses).
///
/// It decides about requests without a service conversation id. One that has an id goes on where
/// the history is, whatever the leaf's setting: an id that begins with `conv_` is a conversation of
/// the Conversations API, any other that of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keeping {
    /// The caller, in a history store or otherwise: every request carries all of it.
    ///
    /// The service is told to store nothing (`store: false`), and asked for the
    /// [encrypted reasoning](super::OpenAiResponses::with_encrypted_reasoning), without which
    /// reasoning could not be sent back.
    #[default]
    Locally,
    /// The service keeps every response, and a request names the one that it goes on from
    /// (`previous_response_id`).
    ///
    /// The conversation's id is that of its newest response, so it is another one after each call.
    /// The service forgets responses in time; OpenAI after 30 days (OpenAI guide, Conversation
    /// state).
    PreviousResponse,
    /// The service keeps the conversation (Conversations API), whose id stays the same. One is
    /// created before the first request.
    ///
    /// If that request fails, the conversation stays empty and nobody knows its id.
    Conversation,
}

/// Where the history before one request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In the request.
    Request,
    /// Nowhere yet; the service begins to keep it.
    NewResponse,
    /// Nowhere yet; the service begins to keep it in a conversation, which is to be created.
    NewConversation,
    /// At the service, up to this response.
    AfterResponse(Arc<str>),
    /// At the service, in this conversation.
    InConversation(Arc<str>),
}

impl Place {
    /// The place that a request's service conversation id names, if it has one.
    pub(super) fn of(service_id: Option<&Arc<str>>, keeping: Keeping) -> Self {
        match (service_id, keeping) {
            (Some(id), _) if id.starts_with("conv_") => Self::InConversation(id.clone()),
            (Some(id), _) => Self::AfterResponse(id.clone()),
            (None, Keeping::Locally) => Self::Request,
            (None, Keeping::PreviousResponse) => Self::NewResponse,
            (None, Keeping::Conversation) => Self::NewConversation,
        }
    }

    /// The id under which the service keeps the history up to a response, by the response's fields;
    /// `None` if it does not, such as where an organisation lets it store nothing.
    pub(super) fn after(&self, response: &Object) -> Option<ConversationId> {
        let id = match self {
            Self::Request => return None,
            Self::InConversation(id) => id.clone(),
            Self::NewResponse | Self::NewConversation | Self::AfterResponse(_) => {
                let is_kept = response.get("store").is_none_or(|store| store.get() != "false");
                let own = || response.get("id").and_then(as_text).filter(|_| is_kept);
                conversation(response).or_else(own)?.into()
            }
        };
        Some(ConversationId::Service(id))
    }

    /// The id while a response is not done: nothing goes on from it yet.
    pub(super) fn before(&self, response: &Object) -> Option<ConversationId> {
        match self {
            Self::AfterResponse(id) => Some(ConversationId::Service(id.clone())),
            Self::Request | Self::NewResponse | Self::NewConversation | Self::InConversation(_) => {
                self.after(response)
            }
        }
    }
}

/// The conversation that a response belongs to.
fn conversation(response: &Object) -> Option<String> {
    let conversation = response.get("conversation")?;
    let fields = conversation.parse::<Object>().ok();
    fields.as_ref().map_or(as_text(conversation), |fields| fields.get("id").and_then(as_text))
}

/// The id of something that the service made.
pub(super) fn id_in(made: &RawJson) -> Option<String> {
    made.parse::<Object>().ok()?.get("id").and_then(as_text)
}
