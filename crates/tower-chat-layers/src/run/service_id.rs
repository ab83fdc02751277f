//! The history owner of a run: the store, the service, or both, by policy.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ConversationKey, HistoryOwner, Message, Part, Role, store::ServiceIdChange,
};

use super::{Run, RunLog};
use crate::{ConflictPolicy, PersistenceError, replay::Replay};

/// Which of a run's messages are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// All messages. The store is the history owner.
    History,
    /// All messages. The service is the history owner, and the store is never read.
    RecordOnly,
    /// All messages. The service has lost its history, and is sent the stored messages.
    AfterLoss,
    /// Only messages that approvals need, because the service does not know approvals.
    Approvals,
}

impl Recording {
    /// Returns what is recorded of a conversation whose history the service stores.
    pub(super) fn of_service_kept(policy: ConflictPolicy) -> Self {
        if policy.clear { Self::Approvals } else { Self::RecordOnly }
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

/// Returns the service id of a run that begins. The stored id and the id of the request must not
/// differ.
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

/// The history owner after an answer.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) recording: Recording,
    pub(super) service_id: Option<Arc<str>>,
    /// The change of the service id in the store.
    pub(super) change: Option<ServiceIdChange>,
}

impl Run {
    /// Compares the service id in an answer with the id of the run, before the answer is written.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy does not allow the id. The error contains the answer.
    pub(super) fn adopt_service_id(
        &self,
        log: &RunLog,
        answer: &Answer,
    ) -> Result<Adopted, PersistenceError> {
        let policy = self.policy().conflict;
        let current = log.conversation.service_id.as_ref();
        let recording = log.conversation.recording;
        let returned = answer.finish.history_owner.as_ref().and_then(HistoryOwner::service_id);
        let answer = || Box::new(answer.clone());
        if recording == Recording::AfterLoss {
            return Ok(match returned {
                Some(returned) => Adopted::named(returned.clone(), Recording::RecordOnly),
                None => Adopted::kept_here(Recording::History),
            });
        }
        let (service_id, recording) = match (current, returned) {
            (None, None) => return Ok(Adopted::kept_here(recording)),
            (Some(current), None) => {
                return Err(PersistenceError::ServiceIdMissing {
                    key: self.key().clone(),
                    service_id: current.clone(),
                    answer: answer(),
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
                        answer: answer(),
                    });
                }
                // The staged messages of a journaled run will be committed, so its other messages are
                // stored too.
                let records_run =
                    ConflictPolicy { clear: policy.clear && log.journal.is_none(), ..policy };
                (returned, Recording::of_service_kept(records_run))
            }
        };
        Ok(Adopted::named(service_id.clone(), recording))
    }
}

impl Adopted {
    /// The service does not store the history. Removes a service id from the store, for example after
    /// an earlier answer of the run has reported the loss of the history.
    fn kept_here(recording: Recording) -> Self {
        Self { recording, service_id: None, change: Some(ServiceIdChange::Clear) }
    }

    /// The service stores the history under this id.
    pub(super) fn named(service_id: Arc<str>, recording: Recording) -> Self {
        let change = Some(ServiceIdChange::Set(service_id.clone()));
        Self { recording, service_id: Some(service_id), change }
    }
}

impl RunLog {
    /// Returns the service id if the service stores the history and has not answered in this run. The
    /// stored messages can then be sent to the service in place of the id, without running a tool
    /// again.
    pub(crate) fn service_id_before_answer(&self) -> Option<Arc<str>> {
        self.conversation.service_id.clone().filter(|_| !self.calls.is_answered)
    }
}
