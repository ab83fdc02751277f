//! The lease of an open run: which attempt may work on the run, and until when.

use std::sync::{Arc, Weak};

use tower_chat_core::store::{
    LeaseEnd, StoreError,
    author::{Slot, Write},
};

use super::Journal;
use crate::{
    PersistenceError, StoreFailure,
    run::{
        Event, LeaveCause, Run, Shared, Submission, log::RunLog, submission::FailedSubmission,
        usage::activity_now,
    },
    telemetry,
};

/// Submits a staged write that only renews the lease, if this attempt works on an open run. With
/// `until`, leaves the run, with this end of the lease.
pub(in crate::run) fn stage_lease(
    run: &Run,
    log: &mut RunLog,
    slot: Result<Slot, StoreError>,
    until: Option<LeaseEnd>,
) -> Submission {
    let RunLog { journal, conversation, .. } = log;
    let Some(journal) = journal.as_deref_mut().filter(|journal| journal.is_open()) else {
        return Submission::nothing();
    };
    let id = conversation.added.next_id();
    let write = Write::new(run.key().clone(), id, conversation.revision, [])
        .with_activity(activity_now(run));
    journal.renew(run.clock().now());
    if let Some(until) = until {
        journal.leave_until(until);
    }
    let write = journal.staged(write, Vec::new(), None, None);
    keep_lease(run, journal);
    conversation.revision = write.result();
    Submission::submit(run.store(), StoreFailure::FailCall, slot, vec![write])
}

/// Takes the run over from an earlier attempt, whose writes then fail.
pub(in crate::run) async fn take_over(run: &Run) -> Result<TakenOver, PersistenceError> {
    let slot = run.reserve().await?;
    let submission = stage_lease(run, &mut run.log(), slot, None);
    let taken = TakenOver(Some(run.clone()));
    match run.await_outcome(submission, || None).await {
        Ok(()) => Ok(taken),
        Err(error) => {
            taken.continue_run();
            Err(error)
        }
    }
}

/// Starts the task that renews the lease, unless it is already running. The task ends with the last
/// clone of the run, when the run is no longer open, or when another process has taken the run
/// over.
pub(in crate::run) fn keep_lease(run: &Run, journal: &mut Journal) {
    let Some(interval) = journal.begin_renewals() else { return };
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let run: Weak<Shared> = Arc::downgrade(&run.shared);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(interval).await;
            let Some(run) = run.upgrade().map(Run::from) else { return };
            let slot = Ok(Slot::unbounded().without_blocking());
            let mut renewed = {
                let mut log = run.log();
                if !log.is_open() {
                    return;
                }
                stage_lease(&run, &mut log, slot, None)
            };
            // A conflict ends the task, because another process has taken the run over. After any
            // other failure, the task tries again at the next interval.
            let failure = renewed.outcome().await.err();
            let failure = failure.map(|FailedSubmission { source, .. }| source);
            if let Some(store) = run.store() {
                telemetry::lease_renewed(store.as_ref(), run.key(), run.id(), failure.as_ref());
            }
            if let Some(StoreError::Conflict(_)) = failure {
                return;
            }
        }
    });
}

/// A guard for a run that this attempt has taken over from an earlier attempt. If the guard is
/// dropped before the run continues, this attempt ends as after a disconnect.
#[must_use]
pub(in crate::run) struct TakenOver(Option<Run>);

impl TakenOver {
    pub(in crate::run) fn continue_run(mut self) {
        self.0 = None;
    }

    pub(in crate::run) fn fail(mut self) {
        if let Some(run) = self.0.take() {
            run.note(Event::Left { cause: LeaveCause::Failed });
        }
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run.note(Event::Left { cause: LeaveCause::Disconnected });
        }
    }
}
