//! Who keeps the history: the store, the service, or both by policy.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ConversationId, ConversationKey, Message, Part, Role, store::ServiceIdChange,
};

use super::Run;
use crate::{ConflictPolicy, PersistenceError};

/// What of a run's messages goes into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// All: the store keeps the history.
    History,
    /// All, but the service keeps the history; the store is never read.
    RecordOnly,
    /// Only what approvals need, since the service knows nothing of them.
    Approvals,
}

impl Recording {
    /// What is recorded of a conversation that the service keeps.
    pub(super) fn of_service_kept(policy: ConflictPolicy) -> Self {
        if policy.clear { Self::Approvals } else { Self::RecordOnly }
    }

    /// The messages to store. `answers_approvals` says whether tool results among them may answer
    /// stored approval requests.
    pub(super) fn select(
        self,
        messages: Vec<Arc<Message>>,
        answers_approvals: bool,
    ) -> Vec<Arc<Message>> {
        match self {
            Self::History | Self::RecordOnly => messages,
            Self::Approvals => {
                let is_request = |part: &Part| matches!(part, Part::ApprovalRequest(_));
                let is_needed = |message: &Arc<Message>| {
                    message.parts.iter().any(is_request)
                        || (answers_approvals && message.role == Role::Tool)
                };
                messages.into_iter().filter(is_needed).collect()
            }
        }
    }
}

/// The id in play when a run begins: the remembered one and the request's must not differ.
pub(super) fn agreed_service_id(
    key: &ConversationKey,
    remembered: Option<Arc<str>>,
    requested: Option<&Arc<str>>,
) -> Result<Option<Arc<str>>, PersistenceError> {
    match (remembered, requested) {
        (Some(remembered), Some(requested)) if remembered != *requested => {
            Err(PersistenceError::ServiceIdMismatch {
                key: key.clone(),
                remembered,
                requested: requested.clone(),
            })
        }
        (remembered, requested) => Ok(requested.cloned().or(remembered)),
    }
}

/// What an answer means for where the history is kept.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) recording: Recording,
    pub(super) service_id: Option<Arc<str>>,
    /// What changes in the store.
    pub(super) change: Option<ServiceIdChange>,
}

impl Run {
    /// Compares the id an answer names with the one in play, before anything of it is written.
    pub(super) fn adopt_service_id(
        &self,
        current: Option<&Arc<str>>,
        recording: Recording,
        answer: &Answer,
    ) -> Result<Adopted, PersistenceError> {
        let policy = self.policy().conflict;
        let returned = answer.finish.conversation_id.as_ref().and_then(ConversationId::service_id);
        let (service_id, recording) = match (current, returned) {
            (None, None) => return Ok(Adopted { recording, service_id: None, change: None }),
            (Some(current), None) => {
                return Err(PersistenceError::ServiceIdMissing {
                    key: self.key().clone(),
                    service_id: current.clone(),
                    answer: Box::new(answer.clone()),
                });
            }
            (Some(_), Some(returned)) => (returned, recording),
            (None, Some(returned)) => {
                if policy.warn {
                    tracing::warn!(
                        conversation = %self.key(),
                        service_id = %returned,
                        "the service keeps this conversation itself although a history store is \
                         configured"
                    );
                }
                if policy.throw {
                    return Err(PersistenceError::ServiceKeepsHistory {
                        key: self.key().clone(),
                        service_id: returned.clone(),
                        answer: Box::new(answer.clone()),
                    });
                }
                (returned, Recording::of_service_kept(policy))
            }
        };
        Ok(Adopted {
            recording,
            service_id: Some(service_id.clone()),
            change: Some(ServiceIdChange::Set(service_id.clone())),
        })
    }
}
