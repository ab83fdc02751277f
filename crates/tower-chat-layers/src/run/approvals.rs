//! Looks up calls that wait for approval, their approval requests, and their recorded outcomes.

use std::sync::Arc;

use tower_chat_core::{Answer, ApprovalRequest, CallPosition, Message, ToolResult};

use super::{
    Run, call_records::PendingCallNotKept, conversation::LoadedConversation,
    model_request::strip_sentinel, prior_attempts::Waiting, recording::Recording,
    redact::calls_without_arguments,
};
use crate::{
    PersistenceError,
    approval::{answers_approvals, find_request, trailing_result_of},
    replay::{PendingApproval, PendingBatch},
    tool::{CallOfRun, NotKept},
};

/// A stored result after which the model has not answered.
pub(crate) enum UnseenResult {
    InReplay,
    /// The service stores the history, and has not received the result.
    SendAgain(Box<(PendingApproval, ToolResult)>),
}

impl Run {
    /// Returns the stored approval requests that wait for a decision, in one batch for each answer
    /// of the model.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        self.log().conversation.replay.pending_approvals()
    }
}

/// Calls the hooks of the calls in these messages that wait for approval, and stores the decisions
/// of the hooks in the run log. Returns an error if a hook refuses, because only a stored call can
/// run after its approval.
///
/// The error contains the answer that `unasked` returns.
pub(crate) fn keep_pending_calls(
    run: &Run,
    messages: &[Arc<Message>],
    unasked: impl FnOnce() -> Answer,
) -> Result<(), PersistenceError> {
    let decided = run.log().call_records.keep_pending_calls(messages);
    decided.map_err(|refused| pending_call_not_kept(run, refused, unasked()))
}

pub(super) fn pending_call_not_kept(
    run: &Run,
    refused: PendingCallNotKept,
    mut answer: Answer,
) -> PersistenceError {
    let PendingCallNotKept { tool, call_id, reason } = refused;
    strip_sentinel(&mut answer);
    PersistenceError::PendingCallNotKept {
        key: run.key().clone(),
        tool,
        call_id,
        reason: match reason {
            NotKept::Forgotten => "forgets it".to_owned(),
            NotKept::HookFailed(failure) => format!("failed ({failure})"),
        },
        answer: Box::new(answer),
    }
}

/// Returns whether a call still waits for a decision. If no other process can access the store, the
/// run of a claim has ended, and the claim is ignored.
pub(crate) fn waiting_of(run: &Run, waiting: &PendingApproval) -> Waiting {
    let Some(call) = waiting.call_position else { return Waiting::Open };
    match run.log().prior_attempts.waiting(call, run.clock().now()) {
        Waiting::Held(_) if run.store().is_some_and(|store| store.handle().is_exclusive()) => {
            Waiting::Open
        }
        waiting => waiting,
    }
}

impl LoadedConversation {
    /// Returns a stored approval request, with the position of its call.
    fn approval_request(&self, id: &str) -> Option<(CallOfRun, ApprovalRequest)> {
        let added = self.added.as_slice().iter().rev();
        let stored = added.chain(self.history.messages.iter().rev());
        let mut found = stored.filter_map(|message| {
            let (index, request) = find_request(message, id)?;
            Some(((message.id?, index as usize), request.clone()))
        });
        found.next()
    }

    /// Returns whether a hook has changed the stored arguments of a call in the loaded history.
    pub(crate) fn has_changed_arguments(&self, (message, index): CallOfRun) -> bool {
        let position = self.position_in_history(message);
        let stored = position.and_then(|position| self.history.messages.get(position));
        stored
            .is_some_and(|stored| calls_without_arguments(stored).any(|position| position == index))
    }

    /// Returns the stored batches that wait for approval. A call whose result is in `own` (the
    /// request's own messages) no longer waits.
    pub(crate) fn pending_batches<'a>(
        &self,
        own: impl Iterator<Item = &'a Arc<Message>>,
    ) -> Vec<PendingBatch> {
        // The replay already contains the staged input of a journaled run.
        let mut replay = self.replay.clone();
        own.filter(|message| !self.added.has_assigned_id(message))
            .for_each(|message| replay.push(message));
        replay.pending_batches()
    }

    pub(crate) fn holds_approval_request(&self, id: &str) -> bool {
        self.approval_request(id).is_some()
    }

    /// Returns the stored result of the call in an approval request, if no answer of the model
    /// follows the result. The run that executed the call is then incomplete, and the new run
    /// continues from the result.
    pub(crate) fn unseen_result_of(&self, request: &str) -> Option<UnseenResult> {
        let ((message, index), request) = self.approval_request(request)?;
        let call = CallPosition { message, index: u32::try_from(index).ok()? };
        let result = match self.recording {
            Recording::History | Recording::RecordOnly | Recording::AfterLoss => {
                trailing_result_of(self.history.messages.iter().rev(), Some(call), &request)
            }
            // The store contains no answers, so only the results that this run has stored are
            // checked.
            Recording::Approvals => {
                trailing_result_of(self.added.as_slice().iter().rev(), Some(call), &request)
            }
        }?
        .clone();
        let call_id = result.call_id.clone().unwrap_or_default();
        let waiting = PendingApproval { call_position: Some((message, index)), request, call_id };
        Some(match self.recording {
            Recording::History | Recording::AfterLoss => UnseenResult::InReplay,
            Recording::RecordOnly | Recording::Approvals => {
                UnseenResult::SendAgain(Box::new((waiting, result)))
            }
        })
    }

    /// Returns the stored messages of the run with decisions about approval requests. An approved
    /// call that has not run remains pending until the caller sends the run again.
    pub(crate) fn stored_approvals(&self) -> Vec<Arc<Message>> {
        self.added
            .as_slice()
            .iter()
            .filter(|message| answers_approvals([*message]))
            .cloned()
            .collect()
    }
}
