//! The connection that writes, and the transactions on it.

use std::{sync::Arc, time::Duration};

use rusqlite::Connection;

use crate::{
    checkpoints::Checkpoints,
    failure::Failure,
    file::{NotSynced, PATIENCE, StoreFile},
    head_cache::{self, HeadCache},
    removal,
    submission::{Next, Work},
    watched::Watched,
    write_panicked::{WritePanicked, catch},
};

/// Owns the connection that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    file: StoreFile,
    checkpoints: Arc<Checkpoints>,
    /// `None` after a rollback failed, until the next transaction opens another.
    connection: Option<Connection>,
    /// What the connection knows.
    heads: HeadCache,
    /// What the files were when it had the lock.
    watched: Watched,
    /// Whether rows of deleted conversations were left when it was made.
    has_deleted_rows: bool,
    /// How many transactions were committed.
    commits: u64,
}

/// Another process holds the file, or may take it before all is done; nothing was stored.
#[derive(Debug)]
pub(crate) struct Busy;

/// How few bytes a step of a removal has at least where the disk is full.
const SMALLEST_STEP: u64 = 16 << 10;

/// Where a transaction stopped; it is rolled back.
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

    /// Goes on with deletions that a process before has left, once. Where that fails, the next deletion
    /// does.
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

    /// Makes what was committed durable and closes the connection.
    pub(crate) fn finish(&mut self) -> Result<(), NotSynced> {
        let synced = self.file.sync_log();
        self.release();
        synced
    }

    /// Closes the connection; the next write opens another.
    pub(crate) fn release(&mut self) {
        self.file.log_is_closed();
        self.connection = None;
        self.heads.forget();
    }

    /// Fails a group in which something panicked outside of its statements. Whether it was committed
    /// before is open, as where a connection is lost: a repetition finds out.
    pub(crate) fn panicked<W: Work>(&mut self, group: &mut [W], panic: WritePanicked) {
        self.release();
        let failure = self.file.panicked(panic);
        for submission in group {
            submission.fail(0, &failure);
        }
    }

    /// Has the writer panic where it looks for a conversation.
    #[cfg(test)]
    pub(crate) fn panics_at(&mut self, key: tower_chat_core::ConversationKey) {
        self.heads.forget();
        self.heads.panics_at = Some(key);
    }

    /// The connection, to change what is in the file.
    #[cfg(test)]
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        self.heads.forget();
        self.observed()
    }

    /// The connection, to observe what it does.
    #[cfg(test)]
    pub(crate) fn observed(&mut self) -> &mut Connection {
        self.connection.as_mut().unwrap()
    }

    /// Does a group of submissions in one transaction and leaves its outcome in each.
    ///
    /// # Errors
    ///
    /// [`Busy`], only where `patience` is zero.
    pub(crate) fn write<W: Work>(
        &mut self,
        group: &mut [W],
        patience: Duration,
    ) -> Result<(), Busy> {
        match self.transaction(patience, |connection, heads| {
            for submission in &mut *group {
                while submission.step(connection, heads)? == Next::Step {}
            }
            Ok(())
        }) {
            Ok(()) => {}
            Err(Stopped::BeforeBegin(failure)) if failure.is_busy() && patience.is_zero() => {
                return Err(Busy);
            }
            // One of the group failed: find out which, by doing every write on its own.
            Err(Stopped::AtStatement(_)) if !is_single(group) => {
                for submission in &mut *group {
                    submission.start_over();
                }
                // Each begins anew, and may have to wait for another process.
                if patience.is_zero() {
                    return Err(Busy);
                }
                self.write_one_by_one(group, patience);
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

    /// Removes what is left of deleted conversations, in steps.
    pub(crate) fn remove_deleted(&mut self) -> Result<(), Stopped> {
        let mut size = removal::STEP;
        loop {
            // Nothing is begun where nothing is left, as is so nearly always.
            let left = self.connection.as_ref().map(removal::find).transpose();
            let left = left.map_err(|error| Stopped::BeforeBegin(self.file.failure(error)))?;
            let Some(number) = left.flatten() else { return Ok(()) };
            match self.transaction(PATIENCE, |connection, _| {
                // Another process may have been faster.
                if removal::find(connection)? == Some(number) {
                    removal::step(connection, number, size)?;
                }
                Ok(())
            }) {
                Ok(()) => {}
                Err(stopped) if stopped.is_full() && size > SMALLEST_STEP => size /= 2,
                Err(stopped) => return Err(stopped),
            }
            // The next step writes over what this one has put into the log.
            if let Some(connection) = &self.connection {
                self.checkpoints.begin_log_anew(connection);
            }
        }
    }

    fn write_one_by_one<W: Work>(&mut self, group: &mut [W], patience: Duration) {
        let mut rest = group.iter_mut();
        while let Some(submission) = rest.next() {
            match self.write_alone(submission, patience) {
                Ok(()) => {}
                Err((completed, Stopped::AtStatement(failure) | Stopped::AtCommit(failure))) => {
                    submission.fail(completed, &failure);
                }
                // Nor could the others begin, and each would wait as long again.
                Err((completed, Stopped::BeforeBegin(failure))) => {
                    submission.fail(completed, &failure);
                    rest.by_ref().for_each(|submission| submission.fail(0, &failure));
                }
            }
        }
    }

    /// Does every write of a submission in a transaction of its own. An error says how many were
    /// done before.
    fn write_alone(
        &mut self,
        submission: &mut impl Work,
        patience: Duration,
    ) -> Result<(), (usize, Stopped)> {
        let mut next = Next::Step;
        while next == Next::Step {
            let completed = submission.stored();
            self.transaction(patience, |connection, heads| {
                next = submission.step(connection, heads)?;
                Ok(())
            })
            .map_err(|stopped| (completed, stopped))?;
        }
        Ok(())
    }

    fn transaction(
        &mut self,
        patience: Duration,
        body: impl FnOnce(&Connection, &mut HeadCache) -> rusqlite::Result<()>,
    ) -> Result<(), Stopped> {
        let failure = |error| self.file.failure(error);
        let connection = match &mut self.connection {
            Some(connection) => connection,
            gone => {
                // It opens whatever is in that place.
                self.file.check_path().map_err(Stopped::BeforeBegin)?;
                let opened = self.file.writer().map_err(failure).and_then(|mut connection| {
                    let version = prepare(&self.file, &self.checkpoints, &mut connection)?;
                    self.watched = Watched::begin(&self.file, &connection, version)?;
                    Ok(connection)
                });
                gone.insert(opened.map_err(Stopped::BeforeBegin)?)
            }
        };
        let outcome = begin(connection, patience)
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
            // The next transaction can write over what is in the file.
            self.checkpoints.ask();
        }
        outcome
    }
}

/// Follows the commits of a connection; SQLite's count of them so far.
fn prepare(
    file: &StoreFile,
    checkpoints: &Arc<Checkpoints>,
    connection: &mut Connection,
) -> Result<u32, Failure> {
    let prepared = checkpoints.follow(connection).and_then(|()| {
        // A read opens the log, and has the count begin.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        head_cache::version(connection)
    });
    prepared.map_err(|error| file.failure(error))
}

fn is_single(group: &[impl Work]) -> bool {
    matches!(group, [only] if only.is_single())
}

fn begin(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(patience)?;
    run(connection, "BEGIN IMMEDIATE")
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
