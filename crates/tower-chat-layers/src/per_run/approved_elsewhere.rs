//! Waits for approved calls that another process runs. A process marks such a call with a claim in
//! the store before the process runs the tool.

use tower_chat_core::{
    ChatRequest, ConversationKey, ToolStatus,
    store::{CallSelection, HistoryStore, Revision},
};

use super::lease_wait::LeaseWaiting;
use crate::{PersistenceError, approval::answers_approvals, run::Settings};

/// The state of a wait for approved calls of other processes, whose time [`LeaseWaiting`] limits.
#[derive(Default)]
pub(super) struct ApprovedElsewhere {
    /// The revision of the conversation when a claim of another process was last found.
    held_at: Option<Revision>,
}

impl ApprovedElsewhere {
    /// Waits for one interval if the request decides about approved calls, and another process
    /// executes one of them, or has not stored its run yet. Returns whether the function has
    /// waited. After a wait, the caller must read the head of the conversation (its current state)
    /// again.
    ///
    /// Without the wait, both runs would send the result of the call to the model in a paid service
    /// call, and the store would refuse the write of one of them. The wait has a limit, because the
    /// record of tool calls does not show whether the other process has crashed.
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
