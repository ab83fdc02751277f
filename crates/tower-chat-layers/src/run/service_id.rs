//! Who keeps the history: the store, the service, or both by policy.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ConversationKey, HistoryOwner, Message, Part, Role, store::ServiceIdChange,
};

use super::{Run, RunLog};
use crate::{ConflictPolicy, PersistenceError, replay::Replay};

/// What of a run's messages goes into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    /// All: the store keeps the history.
    History,
    /// All, but the service keeps the history; the store is never read.
    RecordOnly,
    /// All: the service has lost the history that it kept, and is sent the record.
    AfterLoss,
    /// Only what approvals need, since the service knows nothing of them.
    Approvals,
}

impl Recording {
    /// What is recorded of a conversation that the service keeps.
    pub(super) fn of_service_kept(policy: ConflictPolicy) -> Self {
        if policy.clear { Self::Approvals } else { Self::RecordOnly }
    }

    /// The messages to store. `before` is the replay of what stands before them.
    pub(super) fn select(self, messages: Vec<Arc<Message>>, before: &Replay) -> Vec<Arc<Message>> {
        match self {
            Self::History | Self::RecordOnly | Self::AfterLoss => messages,
            Self::Approvals => {
                let answered = before.clone().push_answering(&messages);
                let mut needed = Vec::new();
                for (message, answered) in messages.into_iter().zip(answered) {
                    // Results of other calls may name the same ids.
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
    ///
    /// # Errors
    ///
    /// If the id does not fit, by policy. The error carries the answer.
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
                // What a journaled run has staged will be committed, so the rest is too.
                let records_run =
                    ConflictPolicy { clear: policy.clear && log.journal.is_none(), ..policy };
                (returned, Recording::of_service_kept(records_run))
            }
        };
        Ok(Adopted::named(service_id.clone(), recording))
    }
}

impl Adopted {
    /// The service keeps nothing. What the store knows of an id is forgotten, as after a loss of which an
    /// earlier answer of the run has told.
    fn kept_here(recording: Recording) -> Self {
        Self { recording, service_id: None, change: Some(ServiceIdChange::Clear) }
    }

    /// The service keeps the history under this id.
    pub(super) fn named(service_id: Arc<str>, recording: Recording) -> Self {
        let change = Some(ServiceIdChange::Set(service_id.clone()));
        Self { recording, service_id: Some(service_id), change }
    }
}

impl RunLog {
    /// The id under which the service keeps the history, if it does and has answered nothing in this run:
    /// the record can be sent in its place without running a tool again.
    pub(crate) fn service_id_before_answer(&self) -> Option<Arc<str>> {
        self.conversation.service_id.clone().filter(|_| !self.calls.is_answered)
    }
}
