//! The database file of a store, and the connections to this file.

pub(crate) mod opening;
mod private_file;
mod unwritable;

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use tower_chat_core::Classified;

use self::{opening::without_trust, private_file::PrivateFile, unwritable::FileState};
use crate::{
    Durability, FileChange, OpenError, SqliteOptions, WritePanicked, failure::Failure,
    identity::Identity,
};

/// The size of the smallest possible database in bytes: one page of SQLite's minimum page size.
const SMALLEST: u64 = 512;

/// The time for which a connection waits for a lock of another process.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The size in bytes to which SQLite truncates a larger write-ahead log, when it begins to
/// overwrite the log.
const LARGEST_IDLE_LOG: u64 = 16 << 20;
/// The number of prepared statements that a writing connection caches.
const STATEMENTS: usize = 64;

/// The database file of a store, with the paths of its log and of the log's index.
#[derive(Debug, Clone)]
pub(crate) struct StoreFile {
    path: Arc<Path>,
    /// The path of the write-ahead log. If the path of the store is a symbolic link, the log is
    /// next to the link's target.
    log: Arc<Path>,
    index: Arc<Path>,
    durability: Durability,
    /// The identity of the file; `None` until the file was checked and found to be a store.
    identity: Option<Identity>,
    /// The log and index that the writer has open; `None` while the writer has no connection.
    in_use: Arc<Mutex<Option<LogInUse>>>,
    /// The state of the file when it was opened, if the store reads it without a log.
    state_without_log: Option<FileState>,
}

/// The identities of the log and the index that the writer has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogInUse {
    log: Identity,
    index: Identity,
}

/// The sizes of the file and its log, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) file: u64,
    pub(crate) log: u64,
}

impl StoreFile {
    /// Opens the store at a path, and creates or migrates it if the options allow this. Returns the
    /// first connection.
    pub(crate) fn open(
        path: &Path,
        options: &SqliteOptions,
    ) -> Result<(Self, Connection), OpenError> {
        let io = |source: io::Error| OpenError::Io {
            path: path.to_path_buf(),
            source: Classified::permanent(source),
        };
        // SQLite interprets some relative names in its own way, and the working directory may
        // change before readers are opened.
        let path: Arc<Path> = std::path::absolute(path).map_err(io)?.into();
        let mut file = Self::at(path, options.durability);
        match file.size_on_disk()? {
            // SQLite treats a file of one byte as an empty database.
            Some(1..SMALLEST) => return Err(OpenError::NotADatabase { path: file.path_buf() }),
            Some(SMALLEST..) => file.check_before_use(options)?,
            found @ (Some(0) | None) => {
                if options.read_only || (found.is_none() && !options.create) {
                    return Err(OpenError::Missing { path: file.path_buf() });
                }
            }
        }
        let connection = if options.read_only {
            file.select_reader()?;
            file.open_checked_reader()?
        } else {
            file.open_current_writer(options.create)?
        };
        file.identity = Identity::at(&file.path).map_err(io)?.map(|found| found.identity);
        file.name_log();
        Ok((file, connection))
    }

    fn at(path: Arc<Path>, durability: Durability) -> Self {
        let [log, index] = [&path, &path].map(Arc::clone);
        let mut file = Self {
            path,
            log,
            index,
            durability,
            identity: None,
            in_use: Arc::default(),
            state_without_log: None,
        };
        file.name_log();
        file
    }

    /// Sets the paths of the log and its index. SQLite creates both next to the target of a
    /// symbolic link.
    fn name_log(&mut self) {
        let file = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path_buf());
        let beside = |ending| {
            let mut name = file.as_os_str().to_owned();
            name.push(ending);
            Arc::from(Path::new(&name))
        };
        (self.log, self.index) = (beside("-wal"), beside("-shm"));
    }

    /// Checks that a file is a store of this or an older version, and returns the file for reading.
    pub(crate) fn of_any_version(path: &Path) -> Result<Self, OpenError> {
        let options = SqliteOptions::new().with_read_only(true);
        match Self::open(path, &options) {
            Ok((file, _)) => Ok(file),
            Err(OpenError::Older { path, .. }) => {
                let mut file = Self::at(path.into(), options.durability);
                file.select_reader()?;
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if the file, its log or the log's index was moved or replaced. A new connection would
    /// then open other files than the writer has open.
    pub(crate) fn check_path(&self) -> Result<(), Failure> {
        self.check_sizes()?;
        let Some(in_use) = *self.in_use() else { return Ok(()) };
        match Identity::at(&self.index) {
            Ok(found) if found.map(|found| found.identity) != Some(in_use.index) => {
                Err(self.changed(FileChange::LogMoved))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Fails if the file or its log was moved or replaced, and returns the sizes of both. Returns
    /// `None` while the writer has no log open, and if the system does not report the sizes. The
    /// missing report is not an error, because a process without access to the folder can still use
    /// the files that it has opened before.
    pub(crate) fn check_sizes(&self) -> Result<Option<Sizes>, Failure> {
        let Ok(file) = Identity::at(&self.path) else { return Ok(None) };
        if self.identity.is_some() && file.map(|found| found.identity) != self.identity {
            return Err(self.changed(FileChange::Moved));
        }
        let Some(in_use) = *self.in_use() else { return Ok(None) };
        let Ok(log) = Identity::at(&self.log) else { return Ok(None) };
        match (file, log) {
            (Some(file), Some(log)) if log.identity == in_use.log => {
                Ok(Some(Sizes { file: file.size, log: log.size }))
            }
            _ => Err(self.changed(FileChange::LogMoved)),
        }
    }

    /// Returns the sizes of the file and its log in bytes; 0 for a size that cannot be determined.
    pub(crate) fn sizes_on_disk(&self) -> (u64, u64) {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        (size(&self.path), size(&self.log))
    }

    /// Records the log that the writer has opened.
    pub(crate) fn log_is_open(&self) {
        *self.in_use() = self.find_log();
    }

    fn find_log(&self) -> Option<LogInUse> {
        let (log, index) = (Identity::at(&self.log).ok()??, Identity::at(&self.index).ok()??);
        Some(LogInUse { log: log.identity, index: index.identity })
    }

    /// Records that the writer closes its connection. SQLite may then delete the log and create
    /// another one.
    pub(crate) fn log_is_closed(&self) {
        *self.in_use() = None;
    }

    fn in_use(&self) -> MutexGuard<'_, Option<LogInUse>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changed(&self, change: FileChange) -> Failure {
        Failure::changed(&self.path, change)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Syncs the committed data to the disk. With [`Durability::Full`], every commit has already
    /// synced its data.
    pub(crate) fn sync_log(&self) -> Result<(), NotSynced> {
        match self.durability {
            Durability::Full => return Ok(()),
            Durability::Normal => {}
        }
        // The log can be opened and closed without SQLite, because SQLite has no locks on it.
        // Closing the database file would release all locks of this process on that file.
        let synced = OpenOptions::new().write(true).open(&self.log).and_then(|log| log.sync_all());
        match synced {
            // The process that closed the last connection has copied the log into the file and
            // synced both.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            synced => synced.map_err(NotSynced),
        }
    }

    /// Returns the permissions of the file, if they can be read.
    pub(crate) fn permissions(&self) -> Option<fs::Permissions> {
        fs::metadata(&self.path).ok().map(|found| found.permissions())
    }

    /// Returns whether a path refers to this file, also through symbolic links.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        match (fs::canonicalize(&self.path), fs::canonicalize(path)) {
            (Ok(own), Ok(other)) => own == other,
            _ => false,
        }
    }

    pub(crate) fn failure(&self, error: rusqlite::Error) -> Failure {
        Failure::new(&self.path, error)
    }

    pub(crate) fn panicked(&self, panic: WritePanicked) -> Failure {
        Failure::panicked(&self.path, panic)
    }

    /// Opens a connection for reading.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = match self.state_without_log {
            Some(_) => self.open_without_log()?,
            None => self.connect(self.flags_to_read())?,
        };
        connection.busy_timeout(LOCK_TIMEOUT)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    /// Returns the flags with which a reader opens the file. SQLite creates a missing log even for
    /// a reader, and only a connection with write permission removes an empty log when it is
    /// closed. But such a connection copies a log with content into the file. Therefore readers
    /// open the file read-only if the log has content.
    fn flags_to_read(&self) -> OpenFlags {
        match self.log_with_content() {
            Some(_) => OpenFlags::SQLITE_OPEN_READ_ONLY,
            None => OpenFlags::SQLITE_OPEN_READ_WRITE,
        }
    }

    /// Opens a connection for writing.
    pub(crate) fn writer(&self) -> rusqlite::Result<Connection> {
        self.writer_with(OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn connect(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        // SQLite's mutexes are disabled, because only one thread at a time uses a connection.
        Connection::open_with_flags(&self.path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .and_then(without_trust)
    }

    /// Opens a connection that creates a missing database file with the permissions of `model`.
    fn connect_as(&self, model: &PrivateFile, flags: OpenFlags) -> rusqlite::Result<Connection> {
        let mut address = address_of(&self.path);
        address.push_str("?modeof=");
        push_escaped(&mut address, &model.0);
        let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(address, flags).and_then(without_trust)
    }

    /// Creates a temporary file of mode 0600 next to the database, whose permissions SQLite copies
    /// to a new database file. Returns `None` if the database exists, or if the file cannot be
    /// created. In the latter case SQLite cannot create the database either, and reports the
    /// reason.
    fn model(&self) -> Option<PrivateFile> {
        if !cfg!(unix) || fs::symlink_metadata(&self.path).is_ok() {
            return None;
        }
        PrivateFile::beside(&self.path)
    }

    fn writer_with(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        self.prepare_writer(self.connect(flags)?)
    }

    fn prepare_writer(&self, connection: Connection) -> rusqlite::Result<Connection> {
        connection.busy_timeout(LOCK_TIMEOUT)?;
        let synchronous = match self.durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        // These pragmas return a row with the new value.
        connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        let limit = format!("PRAGMA journal_size_limit = {LARGEST_IDLE_LOG}");
        connection.query_row(&limit, [], |_| Ok(()))?;
        // Preparing a statement takes about as long as an append.
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }

    fn path_buf(&self) -> PathBuf {
        self.path.to_path_buf()
    }
}

/// Returns the path as a URI of SQLite.
fn address_of(path: &Path) -> String {
    let mut address = "file:".to_owned();
    if !path.starts_with("/") {
        address.push_str("///");
    }
    push_escaped(&mut address, path);
    address
}

/// Appends a path to a URI, with percent-encoding.
fn push_escaped(address: &mut String, path: &Path) {
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b':' => {
                address.push(char::from(*byte));
            }
            b'\\' if cfg!(windows) => address.push('/'),
            _ => address.push_str(&format!("%{byte:02x}")),
        }
    }
}

/// The log could not be synced, so that acknowledged writes may not be on the disk.
#[derive(Debug, thiserror::Error)]
#[error(
    "the write-ahead log could not be synced: the last writes are stored, but a power failure may \
     undo them; open the store again, and call `checkpoint`"
)]
pub(crate) struct NotSynced(#[source] io::Error);
