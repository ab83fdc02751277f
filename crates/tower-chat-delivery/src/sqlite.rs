//! An update log in a SQLite file.
//!
//! The table `runs` contains the state of each run as JSON (its *record*). The table `updates`
//! contains the updates that the runs have sent to their readers.

use std::{
    io::ErrorKind,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Transaction, TransactionBehavior,
};
use tower_chat_layers::{BoxError, store::author::milliseconds};

use crate::{
    Erase, PositionedUpdate, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog,
    UpdateLogError, UpdateLogOptions, UpdatePage, UpdatePosition, author::RunRecord,
};

/// The `application_id` in the headers of this log's files.
const APPLICATION_ID: i32 = 0x7463_756c;
const VERSION: i32 = 1;
const SCHEMA: &str = "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, scope TEXT NOT NULL, conversation TEXT NOT NULL,
        run BLOB NOT NULL, record TEXT NOT NULL, last_at INTEGER NOT NULL,
        UNIQUE (scope, conversation, run)) STRICT;
    CREATE INDEX runs_by_time ON runs (last_at);
    CREATE TABLE updates (
        run INTEGER NOT NULL, position INTEGER NOT NULL, data TEXT NOT NULL,
        PRIMARY KEY (run, position)) STRICT, WITHOUT ROWID;";
const FIND: &str = "SELECT id, record FROM runs
    WHERE scope = ? AND conversation = ? AND run = ? AND last_at > ?";
const PUT: &str = "INSERT INTO runs (scope, conversation, run, record, last_at)
    VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope, conversation, run)
    DO UPDATE SET record = excluded.record, last_at = excluded.last_at";
const APPEND: &str = "INSERT INTO updates (run, position, data) VALUES (?, ?, ?)";
const READ: &str =
    "SELECT position, data FROM updates WHERE run = ? AND position > ? ORDER BY position LIMIT ?";
/// The SQL condition that selects expired runs for erasure. The parameters of the condition are the
/// latest end of an expired run, the id of the run that begins (which is selected first if it has
/// expired), and the maximum number of selected runs.
const EXPIRED: &str = "id IN (SELECT id FROM runs WHERE last_at <= ? ORDER BY run <> ? LIMIT ?)";
/// The maximum time for which a connection waits for a lock on the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of expired runs that are erased when a run begins.
const MAX_SWEPT: i64 = 100;

/// An update log in a SQLite file, which several processes on one machine can share. The file is
/// separate from the file of the histories, because otherwise appends to the log and writes to the
/// histories would wait for each other.
///
/// The log stores updates in plaintext, even if the store of the histories encrypts its messages.
/// `EncryptedUpdateLog` of `tower-chat-encrypted` wraps this log and encrypts the updates.
///
/// Clones share one connection. If the process dies, no appended update is lost. A power failure
/// may lose the last updates.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("updates.db");
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_delivery::{DetachedRunsLayer, SqliteUpdateLog};
/// let runs = DetachedRunsLayer::new(SqliteUpdateLog::open(&path).await?);
/// # Ok::<(), tower_chat_delivery::UpdateLogError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct SqliteUpdateLog {
    connection: Arc<Mutex<Connection>>,
    options: UpdateLogOptions,
}

impl SqliteUpdateLog {
    /// Opens the log in a file. If the file does not exist, creates it with permissions for its
    /// owner only.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened, or is not an update log of this release.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, UpdateLogError> {
        Self::open_with(path, UpdateLogOptions::default()).await
    }

    /// Opens the log in a file, as [`open`](Self::open) does, with the given limits, retention time
    /// and clock.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened, or is not an update log of this release.
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: UpdateLogOptions,
    ) -> Result<Self, UpdateLogError> {
        let path = path.as_ref().to_owned();
        let connection = blocking("open its file", move || connect(&path)).await?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), options })
    }

    /// Executes an operation in a write transaction, on a thread of the blocking pool.
    async fn transaction<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: impl FnOnce(&Transaction<'_>, &UpdateLogOptions) -> Result<T, BoxError>
        + Send
        + 'static,
    ) -> Result<T, UpdateLogError> {
        self.transaction_of(TransactionBehavior::Immediate, action, operation).await
    }

    async fn transaction_of<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        action: &'static str,
        operation: impl FnOnce(&Transaction<'_>, &UpdateLogOptions) -> Result<T, BoxError>
        + Send
        + 'static,
    ) -> Result<T, UpdateLogError> {
        let Self { connection, options } = self.clone();
        blocking(action, move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction_with_behavior(behavior)?;
            let output = operation(&transaction, &options)?;
            transaction.commit()?;
            Ok(output)
        })
        .await
    }

    /// Changes the record of a run. Returns `None` if there is no record or the run has expired.
    async fn change<T: Send + 'static>(
        &self,
        action: &'static str,
        run: &RunKey,
        change: impl FnOnce(&RunKey, &mut RunRecord, &UpdateLogOptions) -> Result<T, UpdateLogError>
        + Send
        + 'static,
    ) -> Result<Option<T>, UpdateLogError> {
        let run = run.clone();
        self.transaction(action, move |transaction, options| {
            let Some((_, mut record)) = find(transaction, &run, options)? else {
                return Ok(None);
            };
            let output = change(&run, &mut record, options)?;
            put(transaction, &run, &record)?;
            Ok(Some(output))
        })
        .await
    }
}

#[async_trait]
impl UpdateLog for SqliteUpdateLog {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        let run = run.clone();
        self.transaction("begin a run", move |transaction, options| {
            let expired_at = milliseconds::of(options.expired_at());
            erase(transaction, EXPIRED, (expired_at, run.run.to_bytes(), MAX_SWEPT))?;
            let found = find(transaction, &run, options)?.map(|(_, record)| record);
            let count: i64 =
                transaction.query_row("SELECT count(*) FROM runs", (), |row| row.get(0))?;
            let count = count.unsigned_abs();
            let record = RunRecord::begin(found, count, &run, attempt, lease, options)?;
            put(transaction, &run, &record)
        })
        .await
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        let (run, updates, end) = (run.clone(), updates.to_vec(), end.cloned());
        self.transaction("append updates", move |transaction, options| {
            let Some((id, mut record)) = find(transaction, &run, options)? else {
                return Err(UpdateLogError::unknown_run(&run, first.attempt).into());
            };
            let new = record.append(&run, first, &updates, end.as_ref(), options)?;
            let mut append = transaction.prepare_cached(APPEND)?;
            for (index, update) in (first.index..).skip(updates.len() - new.len()).zip(new) {
                let position = UpdatePosition::new(first.attempt, index);
                append.execute((id, position.to_integer(), update.data()))?;
            }
            put(transaction, &run, &record)
        })
        .await
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        let renewed = self.change("renew a lease", run, move |run, record, options| {
            record.renew(run, attempt, lease, options)
        });
        renewed.await?.ok_or_else(|| UpdateLogError::unknown_run(run, attempt))
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        let run = run.clone();
        // A deferred transaction reads one snapshot, and does not wait for writers.
        self.transaction_of(
            TransactionBehavior::Deferred,
            "read updates",
            move |transaction, options| {
                let Some((id, record)) = find(transaction, &run, options)? else {
                    return Ok(UpdatePage::new(Vec::new(), RunState::Unknown));
                };
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let mut read = transaction.prepare_cached(READ)?;
                let updates = read.query_map((id, after.to_integer(), limit), |row| {
                    let position = UpdatePosition::from_integer(row.get(0)?);
                    let update = StoredUpdate::new(row.get::<_, String>(1)?);
                    Ok(PositionedUpdate { position, update })
                })?;
                let updates = updates.collect::<Result<Vec<_>, _>>()?;
                Ok(UpdatePage::new(updates, record.state(options)))
            },
        )
        .await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let interrupted =
            self.change("interrupt a run", run, |_, record, options| Ok(record.interrupt(options)));
        Ok(interrupted.await?.unwrap_or(RunState::Unknown))
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let requested = self
            .change("request a stop", run, |_, record, options| Ok(record.request_stop(options)));
        Ok(requested.await?.unwrap_or(RunState::Unknown))
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        let (condition, values) = match what {
            Erase::Conversation(key) => (
                "scope = ? AND conversation = ?",
                vec![key.scope().to_owned(), key.id().to_owned()],
            ),
            Erase::Scope(scope) => ("scope = ?", vec![scope.to_owned()]),
            Erase::EndedBy(time) => {
                ("last_at <= CAST(? AS INTEGER)", vec![milliseconds::of(time).to_string()])
            }
        };
        self.transaction("erase runs", move |transaction, _| {
            let values = rusqlite::params_from_iter(&values);
            erase(transaction, condition, values)
        })
        .await
    }
}

/// Executes an operation on a thread of the blocking pool.
async fn blocking<T: Send + 'static>(
    action: &'static str,
    operation: impl FnOnce() -> Result<T, BoxError> + Send + 'static,
) -> Result<T, UpdateLogError> {
    let output = tokio::task::spawn_blocking(operation).await.unwrap_or_else(|e| Err(e.into()));
    output.map_err(|error| match error.downcast::<UpdateLogError>() {
        Ok(refused) => *refused,
        Err(error) => {
            let is_full =
                |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DiskFull);
            let passes =
                error.downcast_ref().is_some_and(|error| is_locked(error) || is_full(error));
            UpdateLogError::backend(action, passes, error)
        }
    })
}

fn connect(path: &Path) -> Result<Connection, BoxError> {
    // Only SQLite may open an existing file: on POSIX systems, closing a file releases all locks of
    // the process on this file, including the locks of other connections.
    let mut options = std::fs::OpenOptions::new();
    options.create_new(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pragma = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION_ID, VERSION) => {}
        (0, 0) if is_empty(&transaction)? => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        _ => {
            return Err(
                "the file was not created by an update log of this release: use another path"
                    .into(),
            );
        }
    }
    transaction.commit()?;
    switch_to_wal(&connection)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    Ok(connection)
}

/// Switches the file to WAL mode. SQLite does not always wait for other connections during the
/// switch, which is therefore repeated while the file is locked.
fn switch_to_wal(connection: &Connection) -> Result<(), BoxError> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => {
                let reason = "SQLite did not enable the write-ahead log: use a local file system";
                return Err(format!("{reason} (journal mode {mode})").into());
            }
            Err(error) if is_locked(&error) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_locked(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", (), |row| row.get(0))
}

/// Returns the row id and the record of a run that has not expired.
fn find(
    transaction: &Transaction<'_>,
    run: &RunKey,
    options: &UpdateLogOptions,
) -> Result<Option<(i64, RunRecord)>, BoxError> {
    let key = (run.conversation.scope(), run.conversation.id(), run.run.to_bytes());
    let parameters = (key.0, key.1, key.2, milliseconds::of(options.expired_at()));
    let mut find = transaction.prepare_cached(FIND)?;
    let found = find.query_row(parameters, |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
    let Some((id, record)) = found.optional()? else { return Ok(None) };
    Ok(Some((id, serde_json::from_str(&record)?)))
}

fn put(transaction: &Transaction<'_>, run: &RunKey, record: &RunRecord) -> Result<(), BoxError> {
    let key = (run.conversation.scope(), run.conversation.id(), run.run.to_bytes());
    let stored = serde_json::to_string(record)?;
    let mut put = transaction.prepare_cached(PUT)?;
    put.execute((key.0, key.1, key.2, stored, record.last_at()))?;
    Ok(())
}

/// Erases the runs for which an SQL condition is true, with their updates.
fn erase(
    transaction: &Transaction<'_>,
    condition: &str,
    values: impl Params + Clone,
) -> Result<u64, BoxError> {
    let updates =
        format!("DELETE FROM updates WHERE run IN (SELECT id FROM runs WHERE {condition})");
    transaction.execute(&updates, values.clone())?;
    let runs = format!("DELETE FROM runs WHERE {condition}");
    Ok(transaction.execute(&runs, values)? as u64)
}

#[cfg(test)]
mod tests {
    use tower_chat_layers::{ConversationKey, RunId};

    use super::*;

    #[tokio::test]
    async fn a_reader_does_not_wait_for_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("updates.db");
        let log = SqliteUpdateLog::open(&path).await.unwrap();
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let run = RunKey::new(ConversationKey::new("alice", "wardrobe"), RunId::new());
        let page = log.read(&run, UpdatePosition::START, 1).await.unwrap();
        assert_eq!(page.state, RunState::Unknown);
    }

    #[test]
    fn the_switch_to_the_write_ahead_log_waits_for_readers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("updates.db");
        drop(connect(&path).unwrap());
        let reader = Connection::open(&path).unwrap();
        let mode = |mode| {
            reader
                .pragma_update_and_check(None, "journal_mode", mode, |row| row.get::<_, String>(0))
        };
        assert_eq!(mode("DELETE").unwrap(), "delete");
        reader.execute_batch("BEGIN; SELECT count(*) FROM runs").unwrap();
        let opened = thread::spawn(move || connect(&path).map(drop).map_err(|e| e.to_string()));
        thread::sleep(Duration::from_millis(200));
        reader.execute_batch("COMMIT").unwrap();
        opened.join().unwrap().unwrap();
        assert_eq!(mode("WAL").unwrap(), "wal");
    }

    /// In WAL mode, a connection has a shared lock on the file from its first read until it is
    /// closed.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_second_connection_keeps_the_locks_of_the_first() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("updates.db");
        let first = connect(&path).unwrap();
        assert!(!is_empty(&first).unwrap());
        let inode = format!(":{} ", std::fs::metadata(&path).unwrap().ino());
        let locks = || std::fs::read_to_string("/proc/locks").unwrap_or_default();
        // The test checks the locks only on kernels that list them.
        let is_listed = locks().contains(&inode);
        let _second = connect(&path).unwrap();
        assert_eq!(locks().contains(&inode), is_listed);
    }
}
