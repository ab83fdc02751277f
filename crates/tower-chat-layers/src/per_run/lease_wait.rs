//! Waits for the end of another process's lease. A lease is the time until which no other process
//! may take over an open run, which is a journaled run that was neither committed nor discarded.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};
use tower_chat_core::{BoxError, ChatRequest};

use crate::{ConcurrentRuns, PersistenceError, recovery::ResumesRun, run::Settings};

/// The time limit of a run that waits for leases of other processes.
pub(super) struct LeaseWaiting {
    /// The maximum total waiting time. `None` if the run does not wait.
    limit: Option<Duration>,
    /// The time of the first wait plus `limit`. `None` before the first wait.
    deadline: Option<Instant>,
}

impl LeaseWaiting {
    /// The interval at which a waiting run reads the store, because the other process may end or
    /// renew its lease at any time.
    pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

    pub(super) fn of(request: &ChatRequest, settings: &Settings) -> Self {
        let resumes = request.extensions.get::<ResumesRun>();
        let limit = match resumes.and_then(|resumes| resumes.lease_wait) {
            Some(limit) => Some(limit),
            None => matches!(settings.policy.concurrent_runs, ConcurrentRuns::Queue { .. })
                .then_some(settings.policy.journal.lease_wait),
        };
        Self { limit, deadline: None }
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
    pub(super) async fn sleep_until(&mut self, until: SystemTime, settings: &Settings) -> bool {
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

    pub(super) fn waits(&self) -> bool {
        self.limit.is_some()
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
