//! Checkpoints: the copying of the write-ahead log into the file, by the checkpoint thread or by
//! the writer.
//!
//! SQLite overwrites the log from its beginning only after a checkpoint that has copied all pages.
//! Overwriting the log is faster than extending it. A checkpoint thread copies most pages while the
//! writer continues to append pages. The writer copies the last pages itself.

use std::{
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, hooks::Wal};
use tower_chat_core::store::StoreError;

use crate::{
    Durability,
    file::{LOCK_TIMEOUT, StoreFile},
    queue::WriteQueue,
    read::NotRead,
};

/// The name of a checkpoint in error messages.
pub(crate) const CHECKPOINT: &str = "empty the write-ahead log";

/// The number of new pages in the log after which the writer wakes the checkpoint thread.
const STEP: u32 = 400;

/// The number of pages in the log at which the writer copies the remaining pages.
const LIMIT: u32 = 1000;

/// The maximum number of remaining pages that the writer copies itself. If more pages remain, for
/// example after a long read, the checkpoint thread copies them.
const MAX_COPIED_PAGES: u32 = 2 * LIMIT;

/// The number of pages in the log at which the writer waits for readers that prevent a complete
/// checkpoint.
const PAGES_BEFORE_WAIT: u32 = 2 * LIMIT;

/// The time that the writer waits for readers, for each [`PAGES_BEFORE_WAIT`] pages in the log. The
/// wait is longer for a larger log, so that it finally exceeds the longest read.
const WAIT_FOR_READERS: Duration = Duration::from_millis(50);
/// The maximum time that the writer waits for readers.
const MAX_WAIT_FOR_READERS: Duration = Duration::from_secs(1);

/// The time for which one attempt to empty the log waits for readers. Writes wait during this time.
const ATTEMPT: Duration = Duration::from_millis(100);
/// The pause between two attempts to empty the log.
const PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of passes in which the checkpoint thread copies new pages.
const PASSES: usize = 8;

/// The state of the log, shared by the writer and the checkpoint thread.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    file: StoreFile,
    /// The number of pages in the log at which the first checkpoint begins, after SQLite has
    /// started to overwrite the log from its beginning.
    first_due: u32,
    state: Mutex<State>,
    /// Signals changes of the state to the checkpoint thread, and to threads that wait for the end
    /// of a checkpoint.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of pages in the log after the latest commit.
    log: u32,
    /// The number of pages in the log after the latest commit; 0 after a call of `take_written`.
    written: u32,
    /// The number of pages at which the next checkpoint begins.
    due: u32,
    /// The number of copied pages, as the latest checkpoint has reported it.
    copied: u32,
    /// Whether the checkpoint thread should run a checkpoint.
    is_wanted: bool,
    /// Whether a thread of this store is running a checkpoint.
    is_under_way: bool,
    /// Whether the log grows faster than the checkpoint thread copies it, or the thread has failed.
    is_behind: bool,
    /// Whether the checkpoint thread should end.
    is_ending: bool,
}

/// The number of pages in the log, and how many of them are copied, after a checkpoint.
struct Reached {
    log: u32,
    copied: u32,
}

impl Checkpoints {
    pub(crate) fn new(file: StoreFile) -> Self {
        // If every commit syncs the disk, an early checkpoint adds few syncs, and leaves fewer
        // pages for the writer. Otherwise only checkpoints sync the disk, and one large checkpoint
        // is better than several small ones.
        let first_due = match file.durability() {
            Durability::Full => STEP,
            Durability::Normal => LIMIT,
        };
        let state = Mutex::new(State { due: first_due, ..State::default() });
        Self { file, first_due, state, changed: Condvar::new() }
    }

    /// Registers a hook that records the number of pages in the log after each commit, instead of
    /// SQLite's automatic checkpoints.
    pub(crate) fn follow(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let this = self.clone();
        connection.wal_hook(Some(move |_: &mut Wal, pages| {
            this.record_log_size(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }))
    }

    /// Bounds the size of the log: if a checkpoint is due, wakes the checkpoint thread, or copies
    /// the remaining pages on the calling thread. Must be called after each commit.
    pub(crate) fn committed(&self, connection: &Connection) {
        let mut state = self.state();
        let log = state.log;
        if log < state.due {
            return;
        }
        let due = log.saturating_add(STEP);
        state.due = if log < LIMIT { due.min(LIMIT) } else { due };
        if log < LIMIT || (log.saturating_sub(state.copied) > MAX_COPIED_PAGES && !state.is_behind)
        {
            state.is_wanted = true;
            return self.changed.notify_all();
        }
        // If the checkpoint thread is running a checkpoint, `begin` waits for its end. The wait is
        // usually short, because at most [`MAX_COPIED_PAGES`] pages remain to be copied.
        let _under_way = self.begin(state);
        let reached = if log < PAGES_BEFORE_WAIT {
            run_checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")
        } else {
            let wait = WAIT_FOR_READERS.saturating_mul(log / PAGES_BEFORE_WAIT);
            let waits = connection.busy_timeout(wait.min(MAX_WAIT_FOR_READERS));
            waits.and_then(|()| run_checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)"))
        };
        // An error is ignored, because the commit is durable in the log, and a later commit repeats
        // the checkpoint.
        if let Ok(reached) = reached {
            let mut state = self.state();
            state.copied = reached.copied;
            state.is_behind = false;
        }
    }

    /// Copies the whole log, so that the next commit overwrites it, unless a reader or an error
    /// prevents this.
    pub(crate) fn begin_log_anew(&self, connection: &Connection) {
        let _under_way = self.begin(self.state());
        let waits = connection.busy_timeout(WAIT_FOR_READERS);
        let begun =
            waits.and_then(|()| run_checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)"));
        if let Ok(reached) = begun {
            self.state().copied = reached.copied;
        }
    }

    /// Runs the checkpoint thread.
    pub(crate) fn serve(&self) {
        let mut connection = None;
        loop {
            let mut state = self.state();
            while !state.is_wanted && !state.is_ending {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_ending {
                return;
            }
            state.is_wanted = false;
            let _under_way = self.begin(state);
            // An error loses no data: the pages are still in the log, and the writer runs the next
            // checkpoint on its own connection.
            if self.catch_up(&mut connection).is_err() {
                connection = None;
                self.state().is_behind = true;
            }
        }
    }

    /// Copies the whole log and truncates it. Fails with a retryable error if readers or other
    /// processes prevent the truncation for longer than [`LOCK_TIMEOUT`].
    pub(crate) fn empty(self: &Arc<Self>, queue: &WriteQueue) -> Result<(), NotRead> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        {
            // This checkpoint copies most pages while other threads can write. The attempts below
            // block writes.
            let _under_way = self.begin(self.state());
            self.catch_up(&mut None)?;
        }
        loop {
            let this = self.clone();
            let attempt = queue.run_exclusively(move || this.try_to_empty()).blocking_recv();
            if attempt.map_err(|_| NotRead::Damaged(StoreError::Closed))?? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let busy = StoreError::backend(CHECKPOINT, true, CheckpointBusy);
                return Err(NotRead::Damaged(busy));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Tries to truncate the log, and returns whether it succeeded. SQLite holds the write lock
    /// while it waits for readers.
    fn try_to_empty(&self) -> Result<bool, NotRead> {
        let _under_way = self.begin(self.state());
        self.check_path()?;
        let connection = self.file.writer()?;
        connection.busy_timeout(ATTEMPT)?;
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(!is_busy)
    }

    fn check_path(&self) -> Result<(), NotRead> {
        let checked = self.file.check_path();
        checked.map_err(|failure| NotRead::Damaged(failure.store_error(CHECKPOINT)))
    }

    /// Returns the number of pages in the log after the latest commit; `None` if there was no
    /// commit since the previous call.
    pub(crate) fn take_written(&self) -> Option<u32> {
        Some(mem::take(&mut self.state().written)).filter(|pages| *pages > 0)
    }

    /// Requests a checkpoint from the checkpoint thread.
    pub(crate) fn request_checkpoint(&self) {
        self.state().is_wanted = true;
        self.changed.notify_all();
    }

    /// Ends the checkpoint thread.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Waits until the checkpoint thread is idle.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        while state.is_wanted || state.is_under_way {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Blocks all checkpoints of this store until the guard is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.begin(self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this store runs no checkpoint, and marks a checkpoint as running until the
    /// returned guard is dropped. SQLite would refuse the second of two concurrent checkpoints.
    fn begin(&self, mut state: MutexGuard<'_, State>) -> UnderWay<'_> {
        while state.is_under_way {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_under_way = true;
        UnderWay(self)
    }

    /// Records the number of pages in the log after a commit.
    fn record_log_size(&self, pages: u32) {
        let mut state = self.state();
        state.written = pages;
        if pages < mem::replace(&mut state.log, pages) {
            // SQLite has started to overwrite the log from its beginning.
            state.copied = 0;
            state.due = self.first_due;
        }
    }

    /// Copies pages until at most [`MAX_COPIED_PAGES`] remain, or until a reader prevents copying.
    /// If neither has happened after [`PASSES`] passes, sets `is_behind`.
    fn catch_up(&self, connection: &mut Option<Connection>) -> Result<(), NotRead> {
        let connection = match connection {
            Some(connection) => connection,
            none => {
                self.check_path()?;
                none.insert(self.file.writer()?)
            }
        };
        for _ in 0..PASSES {
            let reached = run_checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
            let mut state = self.state();
            let log = state.log;
            if log < reached.log {
                // SQLite has meanwhile started to overwrite the log from its beginning.
                return Ok(());
            }
            state.copied = reached.copied;
            drop(state);
            let is_blocked_by_reader = reached.copied < reached.log;
            if is_blocked_by_reader || log - reached.copied <= MAX_COPIED_PAGES {
                return Ok(());
            }
        }
        self.state().is_behind = true;
        Ok(())
    }
}

/// The guard of a running checkpoint.
struct UnderWay<'a>(&'a Checkpoints);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().is_under_way = false;
        self.0.changed.notify_all();
    }
}

/// Executes a statement that runs a checkpoint.
fn run_checkpoint(connection: &Connection, sql: &str) -> rusqlite::Result<Reached> {
    // SQLite returns -1 for an unknown number, for example while another process runs a checkpoint.
    let pages = |pages: i64| u32::try_from(pages).unwrap_or(0);
    connection.query_row(sql, [], |row| {
        Ok(Reached { log: pages(row.get(1)?), copied: pages(row.get(2)?) })
    })
}

#[derive(Debug, thiserror::Error)]
#[error("other connections read or wrote during each attempt: try again")]
struct CheckpointBusy;
