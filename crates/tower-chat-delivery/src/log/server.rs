//! Update logs on a server that several processes use.
//!
//! An *attempt* is one execution of a run. One process writes the updates of an attempt.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Erase, PositionedUpdate, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog,
    UpdateLogError, UpdateLogOptions, UpdatePage, UpdatePosition, record::RunRecord,
    wakeups::Wakeups,
};

/// The requests that an update log sends to a server that several processes use. The trait
/// [`UpdateLog`] is implemented for every type that implements this trait.
///
/// The server stores the record of each run, which is a [`RunRecord`] as JSON text, and the updates
/// of the run. A write replaces the record only if the record has not changed since the process has
/// read it. Therefore no process overwrites a change by another process.
#[async_trait]
pub trait ServerLog: Send + Sync + 'static {
    /// Returns the limits and the clock of the log.
    fn options(&self) -> &UpdateLogOptions;

    /// Returns the [`Wakeups`] that wake waiting readers.
    fn wakeups(&self) -> &Wakeups;

    /// Returns the record of a run and at most `limit` updates after a position, in order. The
    /// record and the updates must be read from one snapshot. Returns `None` if there is no record.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be read.
    async fn find(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<Option<FoundRun>, UpdateLogError>;

    /// Executes a write in one transaction, and notifies the readers of the run. If the stored
    /// record is not equal to [`RunWrite::found`], changes nothing and returns false.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be written.
    async fn write(&self, run: &RunKey, write: RunWrite<'_>) -> Result<bool, UpdateLogError>;

    /// Erases the given run if it has expired, and also some other expired runs. Returns the number
    /// of remaining runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be written.
    async fn sweep(&self, run: &RunKey) -> Result<u64, UpdateLogError>;

    /// Implements [`UpdateLog::erase`].
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be written.
    async fn erase_runs(&self, what: Erase<'_>) -> Result<u64, UpdateLogError>;
}

/// The record and the requested updates of a run, as the server stores them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// The record.
    pub record: String,
    /// The requested updates.
    pub updates: Vec<PositionedUpdate>,
}

/// A write of one run: its new record, and new updates.
#[derive(Debug, Clone, Copy)]
pub struct RunWrite<'a> {
    /// The record that the write replaces; `None` if the server must not contain a record of the
    /// run.
    pub found: Option<&'a str>,
    /// The new record.
    pub record: &'a str,
    /// The time that [`RunRecord::last_at`] returns for the new record.
    pub last_at: i64,
    /// The position of the first new update.
    pub first: UpdatePosition,
    /// The new updates.
    pub updates: &'a [StoredUpdate],
    /// Whether the write may be sent again if its outcome is unknown. If the server has executed
    /// the first write, the second one changes nothing and returns false.
    pub is_repeatable: bool,
}

impl RunWrite<'_> {
    /// Returns the positions and the texts of the new updates.
    pub fn positioned(&self) -> impl Iterator<Item = (UpdatePosition, &str)> {
        let positions = (self.first.index..).map(|index| UpdatePosition { index, ..self.first });
        positions.zip(self.updates.iter().map(StoredUpdate::data))
    }
}

#[async_trait]
impl<L: ServerLog> UpdateLog for L {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        loop {
            let runs = self.sweep(run).await?;
            let (found, record) = record(self, run).await?.unzip();
            let record = RunRecord::begin(record, runs, run, attempt, lease, self.options())?;
            // This write must not be sent again if its outcome is unknown. If the second write
            // found a changed record, this process could not know whether its own first write or
            // another process has begun the attempt.
            let first = UpdatePosition::new(attempt, 0);
            if write(self, run, found.as_deref(), &record, (first, &[]), false).await? {
                return Ok(());
            }
        }
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        let appended = change(self, run, |record| {
            let new = record.append(run, first, updates, end, self.options())?;
            let stored = u32::try_from(updates.len() - new.len()).unwrap_or(u32::MAX);
            let index = first.index.saturating_add(stored);
            Ok(((), (UpdatePosition { index, ..first }, new)))
        });
        appended.await?.ok_or_else(|| UpdateLogError::unknown_run(run, first.attempt))
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        let renewed = change(self, run, |record| {
            record.renew(run, attempt, lease, self.options()).map(without_updates)
        });
        renewed.await?.ok_or_else(|| UpdateLogError::unknown_run(run, attempt))
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        let found = self.find(run, after, limit).await?;
        let Some(FoundRun { record, updates }) = found else {
            return Ok(UpdatePage::new(Vec::new(), RunState::Unknown));
        };
        Ok(match decode(self, &record)? {
            Some(record) => UpdatePage::new(updates, record.state(self.options())),
            None => UpdatePage::new(Vec::new(), RunState::Unknown),
        })
    }

    async fn wait(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        max_wait: Duration,
    ) -> Result<(), UpdateLogError> {
        self.wakeups().wait(self, run, after, max_wait).await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let interrupted =
            change(self, run, |record| Ok(without_updates(record.interrupt(self.options()))));
        Ok(interrupted.await?.unwrap_or(RunState::Unknown))
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let requested =
            change(self, run, |record| Ok(without_updates(record.request_stop(self.options()))));
        Ok(requested.await?.unwrap_or(RunState::Unknown))
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        self.erase_runs(what).await
    }
}

/// New updates, and the position of the first one.
type New<'u> = (UpdatePosition, &'u [StoredUpdate]);

fn without_updates<'u, T>(output: T) -> (T, New<'u>) {
    (output, (UpdatePosition::START, &[]))
}

/// Changes the record of a run with `change`, and writes it together with the updates that `change`
/// returns. Starts again if another process has changed the record in the meantime.
async fn change<'u, T>(
    log: &impl ServerLog,
    run: &RunKey,
    change: impl Fn(&mut RunRecord) -> Result<(T, New<'u>), UpdateLogError> + Send,
) -> Result<Option<T>, UpdateLogError> {
    loop {
        let Some((found, mut record)) = record(log, run).await? else { return Ok(None) };
        let (output, new) = change(&mut record)?;
        if write(log, run, Some(&found), &record, new, true).await? {
            return Ok(Some(output));
        }
    }
}

async fn write(
    log: &impl ServerLog,
    run: &RunKey,
    found: Option<&str>,
    record: &RunRecord,
    (first, updates): New<'_>,
    is_repeatable: bool,
) -> Result<bool, UpdateLogError> {
    let last_at = record.last_at();
    let record = serde_json::to_string(record)
        .map_err(|error| UpdateLogError::backend("encode a record", false, error))?;
    if found == Some(&record) {
        return Ok(true);
    }
    let write = RunWrite { found, record: &record, last_at, first, updates, is_repeatable };
    log.write(run, write).await
}

/// Returns the stored text and the decoded record of a run that has not expired.
async fn record(
    log: &impl ServerLog,
    run: &RunKey,
) -> Result<Option<(String, RunRecord)>, UpdateLogError> {
    let Some(found) = log.find(run, UpdatePosition::START, 0).await? else { return Ok(None) };
    let record = decode(log, &found.record)?;
    Ok(record.map(|record| (found.record, record)))
}

/// Decodes a stored record. Returns `None` if the run has expired.
fn decode(log: &impl ServerLog, record: &str) -> Result<Option<RunRecord>, UpdateLogError> {
    let record: RunRecord = serde_json::from_str(record)
        .map_err(|error| UpdateLogError::backend("decode a record", false, error))?;
    Ok(Some(record).filter(|record| !record.ended_by(log.options().expired_at())))
}
