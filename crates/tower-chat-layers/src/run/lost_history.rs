//! Determines whether the stored messages can replace the history that a service has lost.

use std::sync::Arc;

use tower_chat_core::{BoxError, Conversation, Message, Role};

use super::Settings;
use crate::{ConflictPolicy, LostHistory, PersistenceError, error::as_permanent};

/// Returns an error if the store does not contain the conversation, or if the policy does not allow
/// its messages to replace the lost history. `error` is the error of the service.
pub(crate) async fn check_recorded(
    settings: &Settings,
    conversation: &Conversation,
    service_id: Arc<str>,
    error: BoxError,
) -> Result<(), PersistenceError> {
    let key = &conversation.key;
    let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
    // The store contains the conversation if it contains an answer, or a message of another run.
    let is_record = |message: &Arc<Message>| {
        message.role == Role::Assistant || message.id.is_none_or(|id| id.run != conversation.run)
    };
    let is_recorded = settings.policy.conflict == ConflictPolicy::Record
        && (*settings.store).load(key).await.map_err(not_loaded)?.messages.iter().any(is_record);
    if !is_recorded || settings.policy.lost_history == LostHistory::Fail {
        let (key, source) = (key.clone(), as_permanent(error));
        return Err(PersistenceError::ServiceHistoryLost { key, service_id, is_recorded, source });
    }
    tracing::warn!(
        conversation = %key,
        service_id = %service_id,
        "the service no longer has the history of this conversation: the request contains the recorded messages"
    );
    Ok(())
}
