//! Waits for approved calls that another process runs.

use tower_chat_core::{
    ChatRequest, ConversationKey, ToolStatus,
    store::{CallSelection, HistoryStore, Revision},
};

use super::lease_wait::LeaseWaiting;
use crate::{PersistenceError, approval::answers_approvals, run::Settings};

/// Waits, by the policy, until other processes have finished approved calls and have stored the runs of
/// these calls.
#[derive(Default)]
pub(super) struct ApprovedElsewhere {
    /// The revision of the conversation when this value last found a claim of another process.
    held_at: Option<Revision>,
}

impl ApprovedElsewhere {
    /// Waits for one interval if the request answers approvals and another process runs an approved call,
    /// or has finished one and not stored its run yet. Returns whether it has waited. If `true`, the
    /// caller must read the head again.
    ///
    /// After the tool has finished, the other run calls the model and is stored. Without the wait, this
    /// request would pay the model for the same result, and one of the two runs would be refused. The
    /// record does not contain whether the other run has died, so the wait has a limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the record of tool calls cannot be read.
    pub(super) async fn wait(
        &mut self,
        revision: Revision,
        request: &ChatRequest,
        key: &ConversationKey,
        settings: &Settings,
        waiting: &mut LeaseWaiting,
    ) -> Result<bool, PersistenceError> {
        let is_shared = !settings.store.handle().is_exclusive();
        let own = request.messages().iter_from(request.history_len());
        if !is_shared || !waiting.waits() || !answers_approvals(own) {
            return Ok(false);
        }
        let which = CallSelection::WithStatus(ToolStatus::PendingApproval);
        let found = settings.store.calls(key, &which).await;
        let found =
            found.map_err(|source| PersistenceError::NotLoaded { key: key.clone(), source });
        let calls: Vec<_> = found?.found.into_iter().map(|(_, call)| call).collect();
        let now = settings.clock.now();
        let held = calls.iter().filter_map(|call| call.held_until).filter(|until| now < *until);
        if let Some(until) = held.max() {
            self.held_at = Some(revision);
            return Ok(waiting.sleep_until(until, settings).await);
        }
        let has_ended = calls.iter().any(|call| call.result.is_some());
        if has_ended && self.held_at == Some(revision) {
            return Ok(waiting.sleep_until(now + LeaseWaiting::POLL_INTERVAL, settings).await);
        }
        Ok(false)
    }
}
