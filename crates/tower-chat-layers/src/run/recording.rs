//! The history owner of a run, and which of the run's messages are stored for it.

use std::sync::Arc;

use tower_chat_core::{Message, Part, Role, store::ServiceIdChange};

use crate::{ConflictPolicy, replay::Replay};

/// The selection of a run's messages that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// All messages. The store is the history owner.
    History,
    /// All messages. The service is the history owner, and the stored history is not sent to it.
    RecordOnly,
    /// All messages. The service has lost its history, and is sent the stored messages.
    AfterLoss,
    /// Only messages that approvals need, because the service does not know approvals.
    Approvals,
}

impl Recording {
    /// Returns the selection of messages that are recorded of a conversation whose history the service
    /// stores.
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
                    // Results of calls without approval may have the same ids.
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
    /// The change of the service id in the store.
    pub(super) change: Option<ServiceIdChange>,
}

impl Adopted {
    /// Returns the value for an answer after which the store is the history owner. Removes a service id
    /// from the store, for example after the service has reported the loss of its history.
    pub(super) fn kept_here(recording: Recording) -> Self {
        Self { recording, service_id: None, change: Some(ServiceIdChange::Clear) }
    }

    /// Returns the value for an answer after which the service stores the history under this id.
    pub(super) fn named(service_id: Arc<str>, recording: Recording) -> Self {
        let change = Some(ServiceIdChange::Set(service_id.clone()));
        Self { recording, service_id: Some(service_id), change }
    }
}
