//! Determines the service id of a run when the run begins, and after each answer. The service id is
//! the id under which a service itself stores the history.

use std::sync::Arc;

use tower_chat_core::{Answer, ConversationKey, HistoryOwner};

use super::{
    Run,
    log::RunLog,
    recording::{Adopted, Recording},
    usage::model_usage,
};
use crate::{ConflictPolicy, PersistenceError};

/// Returns the service id of a run that begins: the id in the request, or the stored id. Both must
/// be equal.
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

/// Adds the usage of an answer to the log. Returns the service id and the selection of recorded
/// messages after the answer.
///
/// Returns an error with the answer if the answer lacks the run's service id, or if the policy does
/// not allow the first service id of the conversation.
pub(super) fn adopt_answer(
    run: &Run,
    log: &mut RunLog,
    answer: &Answer,
) -> Result<Adopted, PersistenceError> {
    log.calls.unreported_usage.push(model_usage(answer, run.policy().prices.as_ref()));
    let policy = run.policy().conflict;
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
                key: run.key().clone(),
                service_id: current.clone(),
                answer: answer(),
            });
        }
        (Some(_), Some(returned)) => (returned, recording),
        (None, Some(returned)) => {
            tracing::info!(
                conversation = %run.key(),
                service_id = %returned,
                "the service stores this conversation itself, although a history store is configured"
            );
            if policy == ConflictPolicy::Fail {
                return Err(PersistenceError::ServiceKeepsHistory {
                    key: run.key().clone(),
                    service_id: returned.clone(),
                    answer: answer(),
                });
            }
            // The commit adds the staged messages before this answer to the history. Without the
            // later messages, the run would be incomplete.
            let recording = match log.journal {
                Some(_) => Recording::RecordOnly,
                None => Recording::of_service_kept(policy),
            };
            (returned, recording)
        }
    };
    Ok(Adopted::named(service_id.clone(), recording))
}

impl RunLog {
    /// Returns the service id if the service stores the history and has not answered in this run.
    /// If the history is lost, such a run can begin again and send the stored messages instead, and
    /// no tool runs again.
    pub(crate) fn service_id_before_answer(&self) -> Option<Arc<str>> {
        self.conversation.service_id.clone().filter(|_| !self.calls.is_answered)
    }
}
