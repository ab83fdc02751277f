//! The state of one run in an update log, and the effect of every operation on it.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, its request
//! can be sent again, which begins the next attempt. An attempt owns the run until the run is
//! closed or a later attempt begins. The process of the attempt must renew the *lease* of the run,
//! a time limit, or a reader may close the run.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tower_chat_layers::store::author::milliseconds;

use super::{
    Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLogError, UpdateLogOptions,
    UpdatePosition,
};

/// The state of one run in an update log. Every log stores this record, for example as JSON, and
/// calls its methods. Therefore all logs follow the same rules.
///
/// If several processes share a log, a process must not overwrite a change that another process has
/// made since the record was read. Use a lock of the database, or replace the record only if its
/// stored text is still the text that was read.
///
/// ```
/// use std::time::Duration;
/// use tower_chat_delivery::{
///     RunEnd, RunKey, StoredUpdate, UpdateLogOptions, UpdatePosition, author::RunRecord,
/// };
/// use tower_chat_layers::{ConversationKey, RunId};
/// let options = UpdateLogOptions::default();
/// let run = RunKey::new(ConversationKey::new("alice", "support"), RunId::new());
/// let lease = Duration::from_secs(15);
/// let mut record = RunRecord::begin(None, 0, &run, 1, lease, &options)?;
/// let updates = ["Take ", "a coat."].map(StoredUpdate::new);
/// let first = UpdatePosition::new(1, 0);
/// let end = Some(&RunEnd::Completed);
/// let new = record.append(&run, first, &updates, end, &options)?;
/// assert_eq!(new, updates); // to be stored together with the record
/// let repeated = record.append(&run, first, &updates, end, &options)?;
/// assert!(repeated.is_empty());
/// # Ok::<(), tower_chat_delivery::UpdateLogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    attempt: u32,
    /// The index of the next update of the attempt.
    next: u32,
    /// The number of stored updates of all attempts.
    updates: u64,
    /// The sum of the sizes of all stored updates, in bytes.
    bytes: u64,
    /// The end of the lease of the attempt, in milliseconds since 1970.
    lease_until: i64,
    stop_requested: bool,
    end: Option<RunEnd>,
    /// The time at which the run was closed, in milliseconds since 1970.
    ended_at: Option<i64>,
}

impl RunRecord {
    /// Begins an attempt, whose number must be greater than the number of the previous attempt.
    /// `found` is the stored record of the run; `None` if there is no record or the run has
    /// expired. `runs` is the number of runs in the log.
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`](UpdateLogError::LimitExceeded) or [`NotOwner`](UpdateLogError::NotOwner).
    pub fn begin(
        found: Option<Self>,
        runs: u64,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
        options: &UpdateLogOptions,
    ) -> Result<Self, UpdateLogError> {
        let now = options.now();
        if found.is_none() && runs >= options.max_runs {
            let (run, limit) = (run.clone(), "number of runs");
            return Err(UpdateLogError::LimitExceeded { run, limit, max: options.max_runs });
        }
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

    /// Adds updates to the counts of the record. Returns the updates that the log must store
    /// together with the record: those that no earlier execution of the same append has stored.
    /// Closes the run if `end` is set.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](UpdateLogError::NotOwner), [`Gap`](UpdateLogError::Gap) or
    /// [`LimitExceeded`](UpdateLogError::LimitExceeded).
    pub fn append<'u>(
        &mut self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &'u [StoredUpdate],
        end: Option<&RunEnd>,
        options: &UpdateLogOptions,
    ) -> Result<&'u [StoredUpdate], UpdateLogError> {
        let now = options.now();
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
        let exceeded = |limit, max| UpdateLogError::LimitExceeded { run: run.clone(), limit, max };
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
        self.next =
            next.ok_or_else(|| exceeded("number of updates of an attempt", u32::MAX.into()))?;
        (self.updates, self.bytes) = (count, bytes);
        if let Some(end) = end {
            self.close(end.clone(), now);
        }
        Ok(new)
    }

    /// Renews the lease of the attempt.
    ///
    /// # Errors
    ///
    /// [`NotOwner`](UpdateLogError::NotOwner).
    pub fn renew(
        &mut self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
        options: &UpdateLogOptions,
    ) -> Result<Renewed, UpdateLogError> {
        let now = options.now();
        self.check_owner(run, attempt, now)?;
        self.lease_until = lease_end(now, lease);
        Ok(Renewed { stop_requested: self.stop_requested })
    }

    /// Closes the run as interrupted if the lease of the run has expired.
    pub fn interrupt(&mut self, options: &UpdateLogOptions) -> RunState {
        let now = options.now();
        if self.end.is_none() && !self.is_leased(now) {
            self.close(RunEnd::Interrupted, now);
        }
        self.state_at(now)
    }

    /// Requests a stop, unless the run has ended.
    pub fn request_stop(&mut self, options: &UpdateLogOptions) -> RunState {
        self.stop_requested |= self.end.is_none();
        self.state(options)
    }

    /// Returns the state of the run.
    pub fn state(&self, options: &UpdateLogOptions) -> RunState {
        self.state_at(options.now())
    }

    fn state_at(&self, now: SystemTime) -> RunState {
        let attempt = self.attempt;
        match &self.end {
            Some(end) => RunState::Closed { attempt, end: end.clone() },
            None if self.is_leased(now) => {
                RunState::Open { attempt, stop_requested: self.stop_requested }
            }
            None => RunState::LeaseExpired { attempt },
        }
    }

    /// Returns the time at which the run ended, or at which its lease expires if the run has not
    /// ended, in milliseconds since 1970.
    pub fn last_at(&self) -> i64 {
        self.ended_at.unwrap_or(self.lease_until)
    }

    /// Returns whether the run ended at the given time or before.
    pub fn ended_by(&self, time: SystemTime) -> bool {
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
        UpdateLogError::NotOwner { run: run.clone(), attempt, found: self.state_at(now) }
    }
}

fn lease_end(now: SystemTime, lease: Duration) -> i64 {
    now.checked_add(lease).map_or(i64::MAX, milliseconds::of)
}
