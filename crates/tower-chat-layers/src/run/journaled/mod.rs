//! Journaled mode: each message and outcome is staged as soon as it exists, and one commit at the end of
//! the run adds all of them to the history.

mod interrupted;
mod journal;
pub(super) mod lease;

pub(crate) use self::interrupted::InterruptedRun;
pub(super) use self::journal::Journal;
use super::{
    Run,
    events::Event,
    incomplete_commit::{OfPriorCalls, of_prior_calls},
    log::RunLog,
};
use crate::{PersistenceError, policy::RunEnd, store::Journal as _, tool::CallOfRun};

impl RunLog {
    pub(crate) fn is_resumed(&self) -> bool {
        self.journal.as_deref().is_some_and(|journal| journal.lease.attempt > 1)
    }
}

/// Ends a failed run in its current state, if it is open and the model has not answered in any
/// attempt. `end` receives the number of this attempt. A failure is only logged, because the caller
/// already reports another error.
pub(crate) async fn end_unanswered(run: &Run, end: impl FnOnce(u32) -> Option<RunEnd>) {
    let attempt = {
        let log = run.log();
        let open = log.journal.as_deref().filter(|journal| journal.is_open());
        open.filter(|_| !log.conversation.added.has_answers()).map(|journal| journal.lease.attempt)
    };
    let Some(end) = attempt.and_then(end) else { return };
    let of_prior_calls = match end {
        RunEnd::Commit => prior_calls_of_open_run(run).await,
        RunEnd::Discard => Ok(OfPriorCalls::default()),
    };
    let ended = match of_prior_calls {
        Ok(of_prior_calls) => run.write(Event::EndedAsItStands { end, of_prior_calls }).await,
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        tracing::error!(
            conversation = %run.key(),
            error = &error as &dyn std::error::Error,
            "a run that was refused could not be ended: it stays open"
        );
    }
}

async fn prior_calls_of_open_run(run: &Run) -> Result<OfPriorCalls, PersistenceError> {
    let (Some(store), key) = (run.store(), run.key()) else { return Ok(OfPriorCalls::default()) };
    let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
    match store.open_run(key).await.map_err(not_loaded)? {
        Some(content) if content.open.run == run.id() => {
            of_prior_calls(store.as_ref(), key, &content.messages).await.map_err(not_loaded)
        }
        Some(_) | None => Ok(OfPriorCalls::default()),
    }
}

/// Returns a position of a call that is the same in each attempt. In journaled mode, this is the
/// position among the stored calls, or `None` if a hook has removed the call.
pub(crate) fn position_across_attempts(
    run: &Run,
    (message, index): CallOfRun,
) -> Option<CallOfRun> {
    if !run.records_each_outcome() {
        return Some((message, index));
    }
    let log = run.log();
    let stored = log.call_records.stored_position(&log.conversation, (message, index))?;
    Some((message, stored.call.index as usize))
}
