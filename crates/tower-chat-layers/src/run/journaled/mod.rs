//! Journaled mode: everything is staged as it happens, and becomes part of the history at the end of
//! the run by one commit.

mod interrupted;
mod journal;
mod lease;

pub(crate) use self::interrupted::InterruptedRun;
pub(super) use self::{interrupted::input_of, journal::Journal};
use super::{
    Run, RunLog,
    as_it_stands::{OfPriorCalls, of_prior_calls},
    events::Event,
};
use crate::{
    PersistenceError,
    policy::{RunEnd, UnknownCalls},
    tool::CallOfRun,
};

impl RunLog {
    /// The number of this attempt at the run, if the run is open and the model has answered nothing
    /// in any attempt.
    fn unanswered_attempt(&self) -> Option<u32> {
        let journal = self.journal.as_deref().filter(|journal| journal.is_open());
        journal.filter(|_| !self.conversation.has_answers()).map(Journal::attempt)
    }

    /// Whether an open run was taken up that an earlier attempt has left.
    pub(crate) fn is_resumed(&self) -> bool {
        self.journal.as_deref().is_some_and(|journal| journal.attempt() > 1)
    }
}

impl Run {
    /// The run has failed. If it is open and the model has answered nothing in any attempt, ends it
    /// where it stands, as `end` says for the number of this attempt. That it could not be ended is
    /// logged: the caller has an error to report already.
    pub(crate) async fn end_unanswered(&self, end: impl FnOnce(u32) -> Option<RunEnd>) {
        let attempt = self.log().unanswered_attempt();
        let Some(end) = attempt.and_then(end) else { return };
        let of_prior_calls = match end {
            RunEnd::Commit => self.of_prior_calls().await,
            RunEnd::Discard => Ok(OfPriorCalls::default()),
        };
        let ended = match of_prior_calls {
            Ok(of_prior_calls) => self.write(Event::EndedAsItStands { end, of_prior_calls }).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(
                conversation = %self.key(),
                error = &error as &dyn std::error::Error,
                "a run that was refused could not be ended: it stays open"
            );
        }
    }

    async fn of_prior_calls(&self) -> Result<OfPriorCalls, PersistenceError> {
        let (store, key) = (self.store().as_ref(), self.key());
        let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
        match store.open_run(key).await.map_err(not_loaded)? {
            Some(content) if content.open.run == self.id() => {
                of_prior_calls(store, key, &content.messages).await.map_err(not_loaded)
            }
            Some(_) | None => Ok(OfPriorCalls::default()),
        }
    }

    /// The position by which every attempt knows a call: a hook may have kept calls before it out of
    /// the journal. `None` for a call that was kept out itself; no other attempt knows of that one.
    pub(crate) fn position_across_attempts(
        &self,
        (message, index): CallOfRun,
    ) -> Option<CallOfRun> {
        if !self.records_each_outcome() {
            return Some((message, index));
        }
        let stored = self.log().stored_position((message, index))?;
        Some((message, stored.call.index as usize))
    }

    /// What becomes of calls that may or may not have run.
    pub(crate) fn unknown_calls(&self) -> UnknownCalls {
        self.policy().journal.unknown_calls.clone()
    }
}
