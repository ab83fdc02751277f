//! Calls that wait for approval: what is stored of them, and what is known of their outcomes.

use std::sync::Arc;

use tower_chat_core::{Answer, ApprovalRequest, CallPosition, Message, Part, ToolResult};

use super::{
    Run, RunLog,
    call_records::PendingCallNotKept,
    prior_attempts::{CallOutcome, Waiting},
    redact::calls_without_arguments,
    service_id::Recording,
    strip_sentinel,
};
use crate::{
    PersistenceError,
    approval::{find_request, trailing_result_of},
    replay::{PendingApproval, PendingBatch},
    tool::{CallOfRun, NotKept},
};

/// A stored result that the model has not answered to.
pub(crate) enum UnseenResult {
    /// The replay shows it.
    InReplay,
    /// The service keeps the history, and has not been sent it.
    SendAgain(Box<(PendingApproval, ToolResult)>),
}

impl Run {
    /// The stored approval requests that nobody has answered yet, a batch per answer of the model.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        self.log().conversation.replay.pending_approvals()
    }

    /// Checks that what waits for approval in these messages of an answer can be run later.
    ///
    /// # Errors
    ///
    /// [`PersistenceError::PendingCallNotKept`], with the answer as `unasked` holds it.
    pub(crate) fn keep_pending_calls(
        &self,
        messages: &[Arc<Message>],
        unasked: impl FnOnce() -> Answer,
    ) -> Result<(), PersistenceError> {
        let decided = self.log().call_records.keep_pending_calls(messages);
        decided.map_err(|refused| self.pending_call_not_kept(refused, unasked()))
    }

    pub(super) fn pending_call_not_kept(
        &self,
        refused: PendingCallNotKept,
        mut answer: Answer,
    ) -> PersistenceError {
        let PendingCallNotKept { tool, call_id, reason } = refused;
        strip_sentinel(&mut answer);
        PersistenceError::PendingCallNotKept {
            key: self.key().clone(),
            tool,
            call_id,
            reason: match reason {
                NotKept::Forgotten => "forgets it".to_owned(),
                NotKept::HookFailed(failure) => format!("failed ({failure})"),
            },
            answer: Box::new(answer),
        }
    }

    /// Whether a call can still be decided about. A run of this process that has ended does not hold its
    /// calls any more.
    pub(crate) fn waiting(&self, waiting: &PendingApproval) -> Waiting {
        let Some(call) = waiting.call_position else { return Waiting::Open };
        match self.log().prior_attempts.waiting(call, self.0.clock.now()) {
            Waiting::Held(_) if self.store().handle().is_exclusive() => Waiting::Open,
            waiting => waiting,
        }
    }
}

impl RunLog {
    /// A stored approval request, with the position of its call.
    fn approval_request(&self, id: &str) -> Option<(CallOfRun, ApprovalRequest)> {
        let stored =
            self.conversation.added.iter().rev().chain(self.conversation.history.iter().rev());
        let mut found = stored.filter_map(|message| {
            let (index, request) = find_request(message, id)?;
            Some(((message.id?, index as usize), request.clone()))
        });
        found.next()
    }
}

/// Whether somebody answers an approval request in these messages.
pub(crate) fn answers_approvals<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> bool {
    messages
        .into_iter()
        .flat_map(|message| &message.parts)
        .any(|part| matches!(part, Part::ApprovalResponse(_)))
}

impl RunLog {
    /// Whether a hook has changed the stored arguments of a call in the loaded history.
    pub(crate) fn has_changed_arguments(&self, (message, index): CallOfRun) -> bool {
        let position = self.position_in_history(message);
        let stored = position.and_then(|position| self.conversation.history.get(position));
        stored
            .is_some_and(|stored| calls_without_arguments(stored).any(|position| position == index))
    }

    /// The batches that wait for approval, in view of the messages that a request brings: their
    /// results may answer calls of a batch.
    pub(crate) fn pending_batches<'a>(
        &self,
        own: impl Iterator<Item = &'a Arc<Message>>,
    ) -> Vec<PendingBatch> {
        // The staged input of a journaled run is part of the replay already.
        let mut replay = self.conversation.replay.clone();
        own.filter(|message| !self.is_taken(message)).for_each(|message| replay.push(message));
        replay.pending_batches()
    }

    /// What the record knew of a call that waits for approval when the run began, if it was begun.
    pub(crate) fn known_approved(&self, call: CallOfRun) -> Option<CallOutcome> {
        self.prior_attempts.call(call)
    }

    /// Whether a stored message holds an approval request of this id.
    pub(crate) fn holds_approval_request(&self, id: &str) -> bool {
        self.approval_request(id).is_some()
    }

    /// The result of the call of a stored approval request, if the model has said nothing since it
    /// was stored: the run that the call was approved for has not come to its end.
    ///
    /// A run goes on from there. The result is sent again where the service keeps the history.
    pub(crate) fn unseen_result_of(&self, request: &str) -> Option<UnseenResult> {
        let ((message, index), request) = self.approval_request(request)?;
        let call = CallPosition { message, index: u32::try_from(index).ok()? };
        let result = match self.conversation.recording {
            Recording::History | Recording::RecordOnly | Recording::AfterLoss => {
                trailing_result_of(self.conversation.history.iter().rev(), Some(call), &request)
            }
            // What the model said is not stored: of a run that is sent again the results alone are.
            Recording::Approvals => {
                trailing_result_of(self.conversation.added.iter().rev(), Some(call), &request)
            }
        }?
        .clone();
        let call_id = result.call_id.clone().unwrap_or_default();
        let waiting = PendingApproval { call_position: Some((message, index)), request, call_id };
        Some(match self.conversation.recording {
            Recording::History | Recording::AfterLoss => UnseenResult::InReplay,
            Recording::RecordOnly | Recording::Approvals => {
                UnseenResult::SendAgain(Box::new((waiting, result)))
            }
        })
    }

    /// The messages with answers to approval requests that the run has stored: what they let run
    /// and has not run goes on waiting until somebody sends the run again.
    pub(crate) fn stored_approvals(&self) -> Vec<Arc<Message>> {
        self.conversation
            .added
            .iter()
            .filter(|message| answers_approvals([*message]))
            .cloned()
            .collect()
    }
}
