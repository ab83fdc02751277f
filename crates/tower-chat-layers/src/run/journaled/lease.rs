//! The lease of an open run: who may work on it, and until when.

use std::sync::{Arc, Weak};

use tower_chat_core::store::{
    StoreError,
    author::{Slot, Write},
};

use super::{Journal, Journaled};
use crate::{
    PersistenceError, StoreFailure,
    run::{LeaveCause, Run, Shared, State, Submission, submission::FailedSubmission},
    telemetry,
};

impl Journaled<'_> {
    /// Stages nothing but the lease, if the run is open.
    pub(super) fn stage_lease(
        &self,
        slot: Option<Result<Slot, StoreError>>,
        change: impl FnOnce(&mut Journal),
    ) -> Submission {
        let run = self.0;
        let now = run.0.clock.now();
        let mut state = run.state();
        let State { of_mode, conversation, .. } = &mut *state;
        let Some(journal) = of_mode.journal_mut().filter(|journal| journal.is_open()) else {
            return Submission::nothing();
        };
        let id = conversation.next_id(run.id());
        let activity = run.activity_now();
        let write =
            Write::new(run.key().clone(), id, conversation.revision, []).with_activity(activity);
        journal.renew(now);
        change(journal);
        let write = journal.staged(write, Vec::new(), None, None);
        run.keep_lease(journal);
        conversation.revision = write.result();
        let slot = slot.unwrap_or_else(|| Ok(Slot::unbounded().without_blocking()));
        Submission::submit(run.store(), StoreFailure::FailCall, slot, vec![write])
    }
}

impl Run {
    /// Takes the run over from an earlier attempt, and waits until that one can write no more.
    pub(in crate::run) async fn take_over(&self) -> Result<TakenOver, PersistenceError> {
        let slot = self.reserve().await?;
        let submission = Journaled(self).stage_lease(Some(slot), |_| {});
        let taken = TakenOver(Some(self.clone()));
        match self.settled(submission).await {
            Ok(()) => Ok(taken),
            Err(error) => {
                taken.go_on();
                Err(error)
            }
        }
    }

    /// Renews the lease from the first write under it on, for as long as the run exists and is
    /// open.
    pub(in crate::run) fn keep_lease(&self, journal: &mut Journal) {
        let Some(interval) = journal.begin_renewals() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let run: Weak<Shared> = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(run) = run.upgrade().map(Run) else { return };
                if !run.state().of_mode.journal().is_some_and(Journal::is_open) {
                    return;
                }
                // A conflict means that another process took the run over: stop renewing. Any other
                // failure is retried at the next interval.
                let renewed = Journaled(&run).stage_lease(None, |_| {}).outcome().await;
                let failure = renewed.err().map(|FailedSubmission { source, .. }| source);
                let store = run.store().as_ref();
                telemetry::lease_renewed(store, run.key(), run.id(), failure.as_ref());
                if let Some(StoreError::Conflict(_)) = failure {
                    return;
                }
            }
        });
    }
}

/// A run that was taken over. If the caller disconnects before the run goes on, it is left for a
/// later attempt.
#[must_use]
pub(in crate::run) struct TakenOver(Option<Run>);

impl TakenOver {
    pub(in crate::run) fn go_on(mut self) {
        self.0 = None;
    }

    pub(in crate::run) fn fail(mut self) {
        if let Some(run) = self.0.take() {
            run.leave(LeaveCause::Failed);
        }
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run.leave(LeaveCause::Disconnected);
        }
    }
}
