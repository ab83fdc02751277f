//! The writer: the writing connection and its transactions. A submission is a unit of work of one
//! caller in the write queue. A transaction executes a group of submissions.

use std::{sync::Arc, time::Duration};

use rusqlite::Connection;

use crate::{
    checkpoints::Checkpoints,
    failure::Failure,
    file::{LOCK_TIMEOUT, NotSynced, StoreFile},
    head_cache::{self, HeadCache},
    removal,
    submission::{Next, Work},
    watched::Watched,
    write_panicked::{WritePanicked, catch},
};

/// Owns the writing connection, and executes transactions on it.
#[derive(Debug)]
pub(crate) struct Writer {
    file: StoreFile,
    checkpoints: Arc<Checkpoints>,
    /// `None` after a failed rollback or a call of [`release`](Self::release). The next transaction
    /// opens another connection.
    connection: Option<Connection>,
    /// The cache of heads (the rows of conversations), which is valid for this connection only.
    heads: HeadCache,
    /// Detects whether the files were truncated since the previous transaction.
    watched: Watched,
    /// Whether the file contained rows of deleted conversations when the writer was created.
    has_deleted_rows: bool,
    /// The number of committed transactions, including the steps of deletions.
    commits: u64,
}

/// The group was not executed and nothing was stored, because another process has the lock on the
/// file, or could acquire it before the end of the group.
#[derive(Debug)]
pub(crate) struct Busy;

/// The smallest step of a removal, in bytes. While the disk is full, the writer halves its steps
/// down to this size.
const SMALLEST_STEP: u64 = 16 << 10;

/// The stage at which a transaction stopped. If the transaction had begun, it was rolled back.
#[derive(Debug)]
pub(crate) enum Stopped {
    BeforeBegin(Failure),
    AtStatement(Failure),
    AtCommit(Failure),
}

impl Stopped {
    fn failure(self) -> Failure {
        let (Self::BeforeBegin(failure) | Self::AtStatement(failure) | Self::AtCommit(failure)) =
            self;
        failure
    }

    fn is_full(&self) -> bool {
        let (Self::BeforeBegin(failure) | Self::AtStatement(failure) | Self::AtCommit(failure)) =
            self;
        failure.is_full()
    }
}

impl Writer {
    pub(crate) fn new(
        file: StoreFile,
        mut connection: Connection,
        checkpoints: Arc<Checkpoints>,
    ) -> Result<Self, Failure> {
        let version = prepare(&file, &checkpoints, &mut connection)?;
        let watched = Watched::begin(&file, &connection, version)?;
        let found = removal::find(&connection).map_err(|error| file.failure(error))?;
        let (connection, heads) = (Some(connection), HeadCache::default());
        let has_deleted_rows = found.is_some();
        Ok(Self { file, checkpoints, connection, heads, watched, has_deleted_rows, commits: 0 })
    }

    /// Continues deletions that an earlier process has not finished. Only the first call has an
    /// effect. After a failure, the next deletion of a conversation continues the unfinished ones.
    pub(crate) fn purge_deleted_rows(&mut self) {
        if std::mem::take(&mut self.has_deleted_rows) {
            drop(catch(|| self.remove_deleted()));
        }
    }

    pub(crate) fn has_deleted_rows(&self) -> bool {
        self.has_deleted_rows
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// Syncs the committed data to the disk and closes the connection.
    pub(crate) fn finish(&mut self) -> Result<(), NotSynced> {
        let synced = self.file.sync_log();
        self.release();
        synced
    }

    /// Closes the connection. The next write opens a new connection.
    pub(crate) fn release(&mut self) {
        self.file.log_is_closed();
        self.connection = None;
        self.heads.forget();
    }

    /// Fails a group after a panic outside of its statements. The group may or may not be
    /// committed.
    pub(crate) fn panicked<W: Work>(&mut self, group: &mut [W], panic: WritePanicked) {
        self.release();
        let failure = self.file.panicked(panic);
        for submission in group {
            submission.fail(0, &failure);
        }
    }

    /// Makes the writer panic when it reads a conversation.
    #[cfg(test)]
    pub(crate) fn panics_at(&mut self, key: tower_chat_core::ConversationKey) {
        self.heads.forget();
        self.heads.panics_at = Some(key);
    }

    /// Returns the connection, to change the content of the file.
    #[cfg(test)]
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        self.heads.forget();
        self.observed()
    }

    /// Returns the connection, to observe it.
    #[cfg(test)]
    pub(crate) fn observed(&mut self) -> &mut Connection {
        self.connection.as_mut().unwrap()
    }

    /// Executes a group of submissions in one transaction, and sets the outcome of each submission.
    /// If a statement fails in a group of several writes, executes each write in its own
    /// transaction. If another process has the lock on the file, waits up to `lock_timeout`.
    ///
    /// # Errors
    ///
    /// Returns [`Busy`] only if `lock_timeout` is zero.
    pub(crate) fn write<W: Work>(
        &mut self,
        group: &mut [W],
        lock_timeout: Duration,
    ) -> Result<(), Busy> {
        match self.transaction(lock_timeout, |connection, heads| {
            for submission in &mut *group {
                while submission.step(connection, heads)? == Next::Write {}
            }
            Ok(())
        }) {
            Ok(()) => {}
            Err(Stopped::BeforeBegin(failure)) if failure.is_busy() && lock_timeout.is_zero() => {
                return Err(Busy);
            }
            // Each write is executed again in its own transaction, so that only the failing writes
            // fail.
            Err(Stopped::AtStatement(_)) if !is_single(group) => {
                for submission in &mut *group {
                    submission.start_over();
                }
                // Between several transactions the writer may have to wait for other processes. A
                // caller with a timeout of zero must not wait.
                if lock_timeout.is_zero() {
                    return Err(Busy);
                }
                self.write_one_by_one(group, lock_timeout);
            }
            Err(
                Stopped::BeforeBegin(failure)
                | Stopped::AtStatement(failure)
                | Stopped::AtCommit(failure),
            ) => {
                for submission in &mut *group {
                    submission.fail(0, &failure);
                }
            }
        }
        if group.iter().any(Work::has_deleted)
            && let Err(stopped) = self.remove_deleted()
        {
            let failure = stopped.failure();
            group.iter_mut().filter(|it| it.has_deleted()).for_each(|it| it.fail(0, &failure));
        }
        Ok(())
    }

    /// Deletes the remaining rows of deleted conversations, in steps.
    pub(crate) fn remove_deleted(&mut self) -> Result<(), Stopped> {
        let mut size = removal::STEP;
        loop {
            // Usually no rows remain, and this read avoids beginning a transaction.
            let left = self.connection.as_ref().map(removal::find).transpose();
            let left = left.map_err(|error| Stopped::BeforeBegin(self.file.failure(error)))?;
            let Some(number) = left.flatten() else { return Ok(()) };
            match self.transaction(LOCK_TIMEOUT, |connection, _| {
                // Another process may have finished the deletion since that read.
                if removal::find(connection)? == Some(number) {
                    removal::step(connection, number, size)?;
                }
                Ok(())
            }) {
                Ok(()) => {}
                Err(stopped) if stopped.is_full() && size > SMALLEST_STEP => size /= 2,
                Err(stopped) => return Err(stopped),
            }
            // A checkpoint lets the next step overwrite the log.
            if let Some(connection) = &self.connection {
                self.checkpoints.begin_log_anew(connection);
            }
        }
    }

    fn write_one_by_one<W: Work>(&mut self, group: &mut [W], lock_timeout: Duration) {
        let mut rest = group.iter_mut();
        while let Some(submission) = rest.next() {
            match self.write_alone(submission, lock_timeout) {
                Ok(()) => {}
                Err((completed, Stopped::AtStatement(failure) | Stopped::AtCommit(failure))) => {
                    submission.fail(completed, &failure);
                }
                // The remaining submissions fail too. Otherwise each of their transactions would
                // wait for the whole timeout, and probably fail to begin.
                Err((completed, Stopped::BeforeBegin(failure))) => {
                    submission.fail(completed, &failure);
                    rest.by_ref().for_each(|submission| submission.fail(0, &failure));
                }
            }
        }
    }

    /// Executes every write of a submission in its own transaction. The error contains the number
    /// of writes of the submission that are durable.
    fn write_alone(
        &mut self,
        submission: &mut impl Work,
        lock_timeout: Duration,
    ) -> Result<(), (usize, Stopped)> {
        let mut next = Next::Write;
        while next == Next::Write {
            let completed = submission.stored();
            self.transaction(lock_timeout, |connection, heads| {
                next = submission.step(connection, heads)?;
                Ok(())
            })
            .map_err(|stopped| (completed, stopped))?;
        }
        Ok(())
    }

    /// Executes `body` in one transaction, which is rolled back if `body` or the commit fails.
    /// Opens a connection first if none is open.
    fn transaction(
        &mut self,
        lock_timeout: Duration,
        body: impl FnOnce(&Connection, &mut HeadCache) -> rusqlite::Result<()>,
    ) -> Result<(), Stopped> {
        let failure = |error| self.file.failure(error);
        let connection = match &mut self.connection {
            Some(connection) => connection,
            gone => {
                // Another file may have replaced the store's file at this path.
                self.file.check_path().map_err(Stopped::BeforeBegin)?;
                let opened = self.file.writer().map_err(failure).and_then(|mut connection| {
                    let version = prepare(&self.file, &self.checkpoints, &mut connection)?;
                    self.watched = Watched::begin(&self.file, &connection, version)?;
                    Ok(connection)
                });
                gone.insert(opened.map_err(Stopped::BeforeBegin)?)
            }
        };
        let outcome = begin(connection, lock_timeout)
            .and_then(|()| head_cache::version(connection))
            .map_err(|error| Stopped::BeforeBegin(failure(error)))
            .and_then(|version| {
                let watched = &mut self.watched;
                watched.check(&self.file, connection, version).map_err(Stopped::BeforeBegin)?;
                self.heads.begin(version);
                let heads = &mut self.heads;
                catch(|| body(connection, heads))
                    .map_err(|panic| Stopped::AtStatement(self.file.panicked(panic)))?
                    .map_err(|error| Stopped::AtStatement(failure(error)))
            })
            .and_then(|()| {
                run(connection, "COMMIT").map_err(|error| Stopped::AtCommit(failure(error)))
            });
        if outcome.is_ok() {
            self.commits += 1;
            let version = head_cache::version(connection).ok();
            self.heads.committed(version);
            self.watched.committed(version, self.checkpoints.take_written());
            self.checkpoints.committed(connection);
            return outcome;
        }
        self.heads.forget();
        if !connection.is_autocommit() && run(connection, "ROLLBACK").is_err() {
            self.file.log_is_closed();
            self.connection = None;
        }
        if outcome.as_ref().is_err_and(Stopped::is_full) {
            // A checkpoint lets the next transaction overwrite the log, which needs no more space.
            self.checkpoints.request_checkpoint();
        }
        outcome
    }
}

/// Prepares a connection for writing: registers the hook that records the size of the log after
/// each commit. Returns SQLite's data version.
fn prepare(
    file: &StoreFile,
    checkpoints: &Arc<Checkpoints>,
    connection: &mut Connection,
) -> Result<u32, Failure> {
    let prepared = checkpoints.follow(connection).and_then(|()| {
        // Reading opens the log, which initializes the data version.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        head_cache::version(connection)
    });
    prepared.map_err(|error| file.failure(error))
}

/// Returns whether a group consists of one write.
fn is_single(group: &[impl Work]) -> bool {
    matches!(group, [only] if only.is_single())
}

/// Begins a transaction that has the write lock. Waits up to `lock_timeout` for this lock.
fn begin(connection: &Connection, lock_timeout: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(lock_timeout)?;
    run(connection, "BEGIN IMMEDIATE")
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
