//! The history owner of a run, and the selection of the run's messages that are stored.

use std::sync::Arc;

use tower_chat_core::{Message, Part, Role, store::ServiceIdChange};

use crate::{ConflictPolicy, replay::Replay};

/// The messages of a run that are stored, and their history owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// All messages. The store is the history owner.
    History,
    /// All messages. The service is the history owner, and the stored history is not sent to it.
    RecordOnly,
    /// All messages. The service has lost its history, so the stored messages are sent to the
    /// service.
    AfterLoss,
    /// Only approval requests and results of calls that needed approval. The service is the history
    /// owner, but does not store approvals.
    Approvals,
}

impl Recording {
    /// Returns which messages are stored if the service is the history owner.
    pub(super) fn of_service_kept(policy: ConflictPolicy) -> Self {
        match policy {
            ConflictPolicy::Fail | ConflictPolicy::StopRecording => Self::Approvals,
            ConflictPolicy::Record => Self::RecordOnly,
        }
    }

    /// Returns the messages to store. `before` is the replay of the messages before them.
    pub(super) fn select(self, messages: Vec<Arc<Message>>, before: &Replay) -> Vec<Arc<Message>> {
        match self {
            Self::History | Self::RecordOnly | Self::AfterLoss => messages,
            Self::Approvals => {
                let answered = before.clone().push_answering(&messages);
                let mut needed = Vec::new();
                for (message, answered) in messages.into_iter().zip(answered) {
                    // Not the ids, because a call that needs no approval may have the same id.
                    let mut answered = answered.iter().flatten();
                    let answers_approval =
                        message.role == Role::Tool && answered.any(|call| call.needed_approval);
                    if message.parts.iter().any(is_request) || answers_approval {
                        needed.push(message);
                    }
                }
                needed
            }
        }
    }
}

fn is_request(part: &Part) -> bool {
    matches!(part, Part::ApprovalRequest(_))
}

/// The history owner after an answer.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) recording: Recording,
    pub(super) service_id: Option<Arc<str>>,
    pub(super) change: Option<ServiceIdChange>,
}

impl Adopted {
    /// Returns the value for an answer after which the store is the history owner. Its write
    /// removes the service id from the store.
    pub(super) fn kept_here(recording: Recording) -> Self {
        Self { recording, service_id: None, change: Some(ServiceIdChange::Clear) }
    }

    /// Returns the value for an answer after which the service is the history owner.
    pub(super) fn named(service_id: Arc<str>, recording: Recording) -> Self {
        let change = Some(ServiceIdChange::Set(service_id.clone()));
        Self { recording, service_id: Some(service_id), change }
    }
}
