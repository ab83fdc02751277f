//! Waiting for the lease of another process to end.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};
use tower_chat_core::{BoxError, ChatRequest};

use crate::{ConcurrentRuns, PersistenceError, recovery::ResumesRun, run::Settings};

/// How much longer a run may wait for leases of other processes.
pub(super) struct LeaseWaiting {
    /// `None` if it was not told to wait.
    limit: Option<Duration>,
    /// From the first wait on.
    deadline: Option<Instant>,
}

impl LeaseWaiting {
    /// How long a run sleeps at most before it reads the store again: the other process may return its
    /// lease, or renew it, at any time.
    pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

    /// What the request says, or else the policy.
    pub(super) fn of(request: &ChatRequest, settings: &Settings) -> Self {
        let resumes = request.extensions.get::<ResumesRun>();
        let limit = match resumes.and_then(|resumes| resumes.lease_wait) {
            Some(limit) => Some(limit),
            None => matches!(settings.policy.concurrent_runs, ConcurrentRuns::Queue { .. })
                .then_some(settings.policy.journal.lease_wait),
        };
        Self { limit, deadline: None }
    }

    /// Waits a while, if the error says that another process holds the open run and there is time
    /// left; the head is to be read again then.
    ///
    /// # Errors
    ///
    /// The error itself, if there is nothing to wait for, or no time left.
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

    /// Sleeps until then, or until the store is to be read again, whichever is sooner. Returns
    /// `false` at once if the run does not wait, or has no time left.
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

    /// Whether the run waits for other processes at all.
    pub(super) fn is_patient(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether an attempt at the open run failed because another process has taken it over, so that
    /// the head is to be read again: it says who holds the run now.
    pub(super) fn is_lost_race(&self, error: &BoxError) -> bool {
        let conflict = match error.downcast_ref::<PersistenceError>() {
            Some(PersistenceError::RunHeld { .. }) => true,
            Some(PersistenceError::NotStored(not_stored)) => not_stored.conflict().is_some(),
            _ => false,
        };
        self.limit.is_some() && conflict
    }
}
