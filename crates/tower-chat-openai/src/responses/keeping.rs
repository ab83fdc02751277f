//! Who keeps the history: the caller, or the service and under which id.

use std::sync::Arc;

use tower_chat_wire::openai_responses::HistoryLocation;

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

impl Keeping {
    /// Where the history before a request is.
    pub(super) fn location(self, service_id: Option<&Arc<str>>) -> HistoryLocation {
        match (service_id, self) {
            (Some(id), _) => HistoryLocation::of_service_id(id.clone()),
            (None, Self::Locally) => HistoryLocation::Request,
            (None, Self::PreviousResponse) => HistoryLocation::NewResponse,
            (None, Self::Conversation) => HistoryLocation::NewConversation,
        }
    }
}
