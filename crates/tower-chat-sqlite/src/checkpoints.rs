//! When the write-ahead log is carried over into the file, and by whom.
//!
//! Only where everything is carried over does the next commit begin the log anew, and a log that is
//! reused is faster to write than one that grows. A thread of its own carries over while writers go
//! on; but while they never pause, something is always left. So the writer does the rest, as long as
//! that is little.

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
    file::{PATIENCE, StoreFile},
    queue::WriteQueue,
    read::NotRead,
};

pub(crate) const CHECKPOINT: &str = "empty the write-ahead log";

/// After how many more pages of log the thread is asked to carry over.
const STEP: u32 = 400;

/// From how many pages of log on the writer carries over what is left. This is also where SQLite
/// does it by itself, with all of the log at once.
const LIMIT: u32 = 1000;

/// How many pages the writer carries over at most. After a reader that stayed long there may be any
/// number; all but these are left to the thread.
const AT_ONCE: u32 = 2 * LIMIT;

/// From how many pages of log on the writer waits for readers, where only they are in the way.
const PRESSING: u32 = 2 * LIMIT;

/// How long it waits for them, for each so many pages of log; so the log of readers without a gap
/// is as long as the longest of them needs.
const PATIENCE_WITH_READERS: Duration = Duration::from_millis(50);
const MOST_PATIENCE_WITH_READERS: Duration = Duration::from_secs(1);

/// How long one attempt to empty the log waits for readers, while nobody can write; and how long
/// others can before the next.
const ATTEMPT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(50);

/// How often the thread carries over what came meanwhile, before the writer has to stop for it.
const PASSES: usize = 8;

/// The state of the log, shared by the writer and the thread that carries it over.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    file: StoreFile,
    /// At how many pages of a log that was begun anew something is to be done first.
    first_due: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many pages the log has since the last commit.
    log: u32,
    /// The same, until it is taken.
    written: u32,
    /// At how many something is to be done.
    due: u32,
    /// How many pages of the log are known to be carried over.
    carried: u32,
    /// The thread is asked to carry over.
    is_wanted: bool,
    /// The thread, or somebody else of this store, is carrying over.
    is_under_way: bool,
    /// The log grows faster than the thread carries it over, or the thread cannot.
    is_behind: bool,
    is_ending: bool,
}

/// What is in the log, and how much of it is carried over.
struct Reached {
    log: u32,
    carried: u32,
}

impl Checkpoints {
    pub(crate) fn new(file: StoreFile) -> Self {
        // Where commits are synced, a few syncs more are nothing, and the writer has less to wait
        // for. Otherwise they are all there is: it takes fewer to do it at once.
        let first_due = match file.durability() {
            Durability::Full => STEP,
            Durability::Normal => LIMIT,
        };
        let state = Mutex::new(State { due: first_due, ..State::default() });
        Self { file, first_due, state, changed: Condvar::new() }
    }

    /// Follows the commits of a connection, instead of SQLite's own checkpoints in them.
    pub(crate) fn follow(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let this = self.clone();
        connection.wal_hook(Some(move |_: &mut Wal, pages| {
            this.grew_to(u32::try_from(pages).unwrap_or(0));
            Ok(())
        }))
    }

    /// After a commit, on its connection: sees to it that the log does not grow without end.
    pub(crate) fn committed(&self, connection: &Connection) {
        let mut state = self.state();
        let log = state.log;
        if log < state.due {
            return;
        }
        let due = log.saturating_add(STEP);
        state.due = if log < LIMIT { due.min(LIMIT) } else { due };
        if log < LIMIT || (log.saturating_sub(state.carried) > AT_ONCE && !state.is_behind) {
            state.is_wanted = true;
            return self.changed.notify_all();
        }
        // What is under way is as little as what is left for the writer.
        let _under_way = self.begin(state);
        let reached = if log < PRESSING {
            carry_over(connection, "PRAGMA wal_checkpoint(PASSIVE)")
        } else {
            let patience = PATIENCE_WITH_READERS.saturating_mul(log / PRESSING);
            let waits = connection.busy_timeout(patience.min(MOST_PATIENCE_WITH_READERS));
            waits.and_then(|()| carry_over(connection, "PRAGMA wal_checkpoint(RESTART)"))
        };
        // The commit is durable, and stays in the log: the next one tries again.
        if let Ok(reached) = reached {
            let mut state = self.state();
            state.carried = reached.carried;
            state.is_behind = false;
        }
    }

    /// Carries everything over, so that the next commit begins the log anew. Where a reader is in the
    /// way, it grows.
    pub(crate) fn begin_log_anew(&self, connection: &Connection) {
        let _under_way = self.begin(self.state());
        let waits = connection.busy_timeout(PATIENCE_WITH_READERS);
        let begun = waits.and_then(|()| carry_over(connection, "PRAGMA wal_checkpoint(RESTART)"));
        if let Ok(reached) = begun {
            self.state().carried = reached.carried;
        }
    }

    /// The thread that carries over.
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
            // What failed is in the log still. The writer tries when that has grown: it needs no
            // connection of its own for it.
            if self.catch_up(&mut connection).is_err() {
                connection = None;
                self.state().is_behind = true;
            }
        }
    }

    /// Carries everything over and empties the log, waiting a while for whoever is in the way.
    pub(crate) fn empty(self: &Arc<Self>, queue: &WriteQueue) -> Result<(), NotRead> {
        let deadline = Instant::now() + PATIENCE;
        {
            // Most of it while others write.
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

    /// Says whether the log is empty. SQLite takes the lock to write first, and keeps it while it
    /// waits for readers.
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

    /// How many pages the log has since the last commit, if that wrote any since this was last asked.
    pub(crate) fn take_written(&self) -> Option<u32> {
        Some(mem::take(&mut self.state().written)).filter(|pages| *pages > 0)
    }

    /// Asks the thread to carry over.
    pub(crate) fn ask(&self) {
        self.state().is_wanted = true;
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Waits until the thread has nothing to do.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        let mut state = self.state();
        while state.is_wanted || state.is_under_way {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Carries nothing over, as slowly as wanted.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.begin(self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody of this store carries over: of two at once SQLite refuses one.
    fn begin(&self, mut state: MutexGuard<'_, State>) -> UnderWay<'_> {
        while state.is_under_way {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_under_way = true;
        UnderWay(self)
    }

    fn grew_to(&self, pages: u32) {
        let mut state = self.state();
        state.written = pages;
        if pages < mem::replace(&mut state.log, pages) {
            // It was begun anew.
            state.carried = 0;
            state.due = self.first_due;
        }
    }

    /// Carries over until as little is left as the writer may do.
    fn catch_up(&self, connection: &mut Option<Connection>) -> Result<(), NotRead> {
        let connection = match connection {
            Some(connection) => connection,
            none => {
                self.check_path()?;
                none.insert(self.file.writer()?)
            }
        };
        for _ in 0..PASSES {
            let reached = carry_over(connection, "PRAGMA wal_checkpoint(PASSIVE)")?;
            let mut state = self.state();
            let log = state.log;
            if log < reached.log {
                // It was begun anew meanwhile.
                return Ok(());
            }
            state.carried = reached.carried;
            drop(state);
            let is_in_the_way = reached.carried < reached.log;
            if is_in_the_way || log - reached.carried <= AT_ONCE {
                return Ok(());
            }
        }
        self.state().is_behind = true;
        Ok(())
    }
}

/// Somebody carries over, until this is dropped.
struct UnderWay<'a>(&'a Checkpoints);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().is_under_way = false;
        self.0.changed.notify_all();
    }
}

fn carry_over(connection: &Connection, sql: &str) -> rusqlite::Result<Reached> {
    // A log of which nothing is known, as where another process carries it over, counts as empty.
    let pages = |pages: i64| u32::try_from(pages).unwrap_or(0);
    connection.query_row(sql, [], |row| {
        Ok(Reached { log: pages(row.get(1)?), carried: pages(row.get(2)?) })
    })
}

#[derive(Debug, thiserror::Error)]
#[error("somebody was reading or writing all the time: try again")]
struct CheckpointBusy;
