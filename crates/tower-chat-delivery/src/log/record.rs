//! The state of one run in an update log, and the effect of every operation on it. Every log stores this
//! record and calls these functions, so all logs follow the same rules.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tower_chat_layers::store::author::milliseconds;

use super::{
    Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLogError, UpdateLogOptions,
    UpdatePosition,
};

/// The state of one run in an update log. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    attempt: u32,
    /// The index of the next update of the attempt.
    next: u32,
    /// The number of stored updates of all attempts.
    updates: u64,
    /// The sum of the sizes of these updates, in bytes.
    bytes: u64,
    /// The end of the lease of the attempt.
    lease_until: i64,
    stop_requested: bool,
    end: Option<RunEnd>,
    /// When the run was closed.
    ended_at: Option<i64>,
}

impl RunRecord {
    /// Begins an attempt. Its number must be greater than that of the previous attempt.
    pub(crate) fn begin(
        found: Option<Self>,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
        now: SystemTime,
    ) -> Result<Self, UpdateLogError> {
        if let Some(found) = found.as_ref().filter(|found| attempt <= found.attempt) {
            return Err(found.not_owner(run, attempt, now));
        }
        let (updates, bytes) = found.map_or((0, 0), |found| (found.updates, found.bytes));
        Ok(Self {
            attempt,
            next: 0,
            updates,
            bytes,
            lease_until: lease_end(now, lease),
            stop_requested: false,
            end: None,
            ended_at: None,
        })
    }

    /// Adds the updates that are not stored yet, and returns them. The skipped updates at the beginning
    /// are those of an append that is repeated. Closes the run if there is an end.
    pub(crate) fn append<'u>(
        &mut self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &'u [StoredUpdate],
        end: Option<&RunEnd>,
        options: &UpdateLogOptions,
    ) -> Result<&'u [StoredUpdate], UpdateLogError> {
        let now = options.clock.now();
        let after = u64::from(first.index) + updates.len() as u64;
        if self.end.is_some()
            && end.is_some()
            && after <= u64::from(self.next)
            && first.attempt == self.attempt
        {
            return Ok(&[]);
        }
        self.check_owner(run, first.attempt, now)?;
        let Some(stored) = self.next.checked_sub(first.index) else {
            let expected = UpdatePosition::new(self.attempt, self.next);
            return Err(UpdateLogError::Gap { run: run.clone(), expected, first });
        };
        let new = updates.get(stored as usize..).unwrap_or_default();
        let exceeded =
            |limit, most| UpdateLogError::LimitExceeded { run: run.clone(), limit, max: most };
        let count = self.updates.saturating_add(new.len() as u64);
        if count > options.max_updates_per_run {
            return Err(exceeded("number of updates of a run", options.max_updates_per_run));
        }
        let added: u64 = new.iter().map(|update| update.data().len() as u64).sum();
        let bytes = self.bytes.saturating_add(added);
        if bytes > options.max_bytes_per_run {
            return Err(exceeded("bytes of a run", options.max_bytes_per_run));
        }
        let next = u32::try_from(new.len()).ok().and_then(|new| self.next.checked_add(new));
        self.next = next.ok_or_else(|| exceeded("updates of an attempt", u32::MAX.into()))?;
        (self.updates, self.bytes) = (count, bytes);
        if let Some(end) = end {
            self.close(end.clone(), now);
        }
        Ok(new)
    }

    /// Renews the lease of the attempt.
    pub(crate) fn renew(
        &mut self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
        now: SystemTime,
    ) -> Result<Renewed, UpdateLogError> {
        self.check_owner(run, attempt, now)?;
        self.lease_until = lease_end(now, lease);
        Ok(Renewed { stop_requested: self.stop_requested })
    }

    /// Closes the run as interrupted if its lease has expired.
    pub(crate) fn interrupt(&mut self, now: SystemTime) -> RunState {
        if self.end.is_none() && !self.is_leased(now) {
            self.close(RunEnd::Interrupted, now);
        }
        self.state(now)
    }

    /// Requests a stop, unless the run has ended.
    pub(crate) fn request_stop(&mut self, now: SystemTime) -> RunState {
        self.stop_requested |= self.end.is_none();
        self.state(now)
    }

    /// Returns the state of the run at a time.
    pub(crate) fn state(&self, now: SystemTime) -> RunState {
        let attempt = self.attempt;
        match &self.end {
            Some(end) => RunState::Closed { attempt, end: end.clone() },
            None if self.is_leased(now) => {
                RunState::Open { attempt, stop_requested: self.stop_requested }
            }
            None => RunState::LeaseExpired { attempt },
        }
    }

    /// Returns the time of the end of the run, or of its lease if the run has not ended.
    pub(crate) fn last_at(&self) -> i64 {
        self.ended_at.unwrap_or(self.lease_until)
    }

    /// Returns whether the run ended at this time or before.
    pub(crate) fn ended_by(&self, time: SystemTime) -> bool {
        self.last_at() <= milliseconds::of(time)
    }

    fn close(&mut self, end: RunEnd, now: SystemTime) {
        self.end = Some(end);
        self.ended_at = Some(milliseconds::of(now));
    }

    fn is_leased(&self, now: SystemTime) -> bool {
        milliseconds::of(now) < self.lease_until
    }

    fn check_owner(
        &self,
        run: &RunKey,
        attempt: u32,
        now: SystemTime,
    ) -> Result<(), UpdateLogError> {
        match attempt == self.attempt && self.end.is_none() {
            true => Ok(()),
            false => Err(self.not_owner(run, attempt, now)),
        }
    }

    fn not_owner(&self, run: &RunKey, attempt: u32, now: SystemTime) -> UpdateLogError {
        UpdateLogError::NotOwner { run: run.clone(), attempt, found: self.state(now) }
    }
}

/// Returns the error of a write to a run that the log does not contain.
pub(crate) fn unknown_run(run: &RunKey, attempt: u32) -> UpdateLogError {
    UpdateLogError::NotOwner { run: run.clone(), attempt, found: RunState::Unknown }
}

fn lease_end(now: SystemTime, lease: Duration) -> i64 {
    now.checked_add(lease).map_or(i64::MAX, milliseconds::of)
}
