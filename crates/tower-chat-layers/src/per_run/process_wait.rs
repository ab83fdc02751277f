//! Waits for runs of other processes: for the end of a lease, and for approved calls. A lease is the
//! time until which no other process may take over an open run, which is a journaled run that was
//! neither committed nor discarded. A process marks an approved call with a claim in the store
//! before the process runs the tool.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};
use tower_chat_core::{
    BoxError, ChatRequest, ConversationKey, ToolStatus,
    store::{CallSelection, HistoryStore, Revision},
};

use crate::{
    ConcurrentRuns, PersistenceError, approval::answers_approvals, recovery::ResumesRun,
    run::Settings,
};

/// The wait of a run for other processes: its time limit, and what it has found.
pub(super) struct ProcessWait {
    /// The maximum total waiting time. `None` if the run does not wait.
    limit: Option<Duration>,
    /// The time of the first wait plus `limit`. `None` before the first wait.
    deadline: Option<Instant>,
    /// The revision of the conversation when a claim of another process for an approved call was
    /// last found.
    held_at: Option<Revision>,
}

impl ProcessWait {
    /// The interval at which a waiting run reads the store, because the other process may end or
    /// renew its lease at any time.
    const POLL_INTERVAL: Duration = Duration::from_millis(500);

    pub(super) fn of(request: &ChatRequest, settings: &Settings) -> Self {
        let resumes = request.extensions.get::<ResumesRun>();
        let limit = match resumes.and_then(|resumes| resumes.lease_wait) {
            Some(limit) => Some(limit),
            None => matches!(settings.policy.concurrent_runs, ConcurrentRuns::Queue { .. })
                .then_some(settings.policy.journal.lease_wait),
        };
        Self { limit, deadline: None, held_at: None }
    }

    /// Waits for one interval if `error` reports that another process has the lease of the open
    /// run. The caller must then read the [head](tower_chat_core::store::Head) of the conversation
    /// again, which contains its open run.
    ///
    /// Returns `error` if it is another error, if the run does not wait, or if no time remains.
    pub(super) async fn wait_after(
        &mut self,
        error: PersistenceError,
        settings: &Settings,
    ) -> Result<(), PersistenceError> {
        match error {
            PersistenceError::RunHeld { until, .. } if self.sleep_until(until, settings).await => {
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Sleeps for one poll interval, but not longer than until `until`. Returns `false` without
    /// sleeping if the run does not wait, or if no time remains.
    async fn sleep_until(&mut self, until: SystemTime, settings: &Settings) -> bool {
        let Some(limit) = self.limit else { return false };
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert_with(|| now + limit);
        if now >= deadline {
            return false;
        }
        let held = until.duration_since(settings.clock.now()).unwrap_or_default();
        let nap = held.clamp(Duration::from_millis(1), Self::POLL_INTERVAL);
        sleep(nap.min(deadline - now)).await;
        true
    }

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
    pub(super) async fn wait_for_approved(
        &mut self,
        revision: Revision,
        request: &ChatRequest,
        key: &ConversationKey,
        settings: &Settings,
    ) -> Result<bool, PersistenceError> {
        let is_shared = !settings.store.handle().is_exclusive();
        let own = request.messages().iter_from(request.history_len());
        if !is_shared || self.limit.is_none() || !answers_approvals(own) {
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
            return Ok(self.sleep_until(until, settings).await);
        }
        let has_ended = calls.iter().any(|call| call.result.is_some());
        if has_ended && self.held_at == Some(revision) {
            return Ok(self.sleep_until(now + Self::POLL_INTERVAL, settings).await);
        }
        Ok(false)
    }

    /// Returns whether the run waits and `error` reports that another process has taken over the
    /// open run. The caller must then read the [head](tower_chat_core::store::Head) again, because
    /// the head contains the new lease.
    pub(super) fn is_lost_race(&self, error: &BoxError) -> bool {
        let conflict = match error.downcast_ref::<PersistenceError>() {
            Some(PersistenceError::RunHeld { .. }) => true,
            Some(PersistenceError::NotStored(not_stored)) => not_stored.conflict().is_some(),
            _ => false,
        };
        self.limit.is_some() && conflict
    }
}
