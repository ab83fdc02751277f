//! The file of a store: what it is, and connections to it.

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

use self::{opening::without_trust, private_file::PrivateFile, unwritable::Unwritten};
use crate::{
    Durability, FileChange, OpenError, SqliteOptions, WritePanicked, failure::Failure,
    identity::Identity,
};

/// The size of the smallest database: one page of the smallest size.
const SMALLEST: u64 = 512;

/// How long to wait for another process that holds the file.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What is left of a write-ahead log that had to grow, when it is begun anew, in bytes. It is never
/// so large unless a reader stays long, or a write is as large.
const LARGEST_IDLE_LOG: u64 = 16 << 20;
/// How many statements a connection for writing keeps prepared.
const STATEMENTS: usize = 64;

/// A store's file that was looked at and found to be ours.
#[derive(Debug, Clone)]
pub(crate) struct StoreFile {
    path: Arc<Path>,
    /// The write-ahead log and its index, beside the file that the path refers to.
    log: Arc<Path>,
    index: Arc<Path>,
    durability: Durability,
    /// Which file it is, once it is known to be ours.
    identity: Option<Identity>,
    /// Which log and index the writer has open; nothing while it has none.
    in_use: Arc<Mutex<Option<LogInUse>>>,
    /// Set where the file is read without a log, since none can be made beside it.
    unwritten: Option<Unwritten>,
}

/// The write-ahead log that a connection has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogInUse {
    log: Identity,
    index: Identity,
}

/// How large the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) file: u64,
    pub(crate) log: u64,
}

impl StoreFile {
    /// Makes sure that there is an up-to-date store at the path, making or migrating one where the
    /// options allow it. Returns a connection to it, for writing unless the options say read-only.
    pub(crate) fn open(
        path: &Path,
        options: &SqliteOptions,
    ) -> Result<(Self, Connection), OpenError> {
        let io =
            |source: io::Error| OpenError::Io { path: path.to_path_buf(), source: source.into() };
        // An absolute path: SQLite gives some relative names a meaning of their own, and readers
        // are opened later, when the working folder may be another.
        let path: Arc<Path> = std::path::absolute(path).map_err(io)?.into();
        let mut file = Self::at(path, options.durability);
        match file.size_on_disk()? {
            // SQLite takes a file of one byte for an empty one.
            Some(1..SMALLEST) => return Err(OpenError::NotADatabase { path: file.path_buf() }),
            Some(SMALLEST..) => file.check_before_use(options)?,
            found @ (Some(0) | None) => {
                if options.read_only || (found.is_none() && !options.create) {
                    return Err(OpenError::Missing { path: file.path_buf() });
                }
            }
        }
        let connection = if options.read_only {
            file.choose_how_to_read()?;
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
            unwritten: None,
        };
        file.name_log();
        file
    }

    /// They are beside the file that a link refers to.
    fn name_log(&mut self) {
        let file = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path_buf());
        let beside = |ending| {
            let mut name = file.as_os_str().to_owned();
            name.push(ending);
            Arc::from(Path::new(&name))
        };
        (self.log, self.index) = (beside("-wal"), beside("-shm"));
    }

    /// A store of this or an older version at a path, to be read as it is.
    pub(crate) fn of_any_version(path: &Path) -> Result<Self, OpenError> {
        let options = SqliteOptions::new().with_read_only(true);
        match Self::open(path, &options) {
            Ok((file, _)) => Ok(file),
            Err(OpenError::Older { path, .. }) => {
                let mut file = Self::at(path.into(), options.durability);
                file.choose_how_to_read()?;
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    /// Fails if the file, its log or the log's index was moved or replaced: another process that opens
    /// the path would get other files than this connection has.
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

    /// The same for the file and the log alone, which every write asks for. Says how large they are,
    /// if that can be told: files that are open can be used without their folder.
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

    /// How large the file and its log are, as far as that can be told.
    pub(crate) fn sizes_on_disk(&self) -> (u64, u64) {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        (size(&self.path), size(&self.log))
    }

    /// To be called when the writer has opened the log.
    pub(crate) fn log_is_open(&self) {
        *self.in_use() = self.find_log();
    }

    fn find_log(&self) -> Option<LogInUse> {
        let (log, index) = (Identity::at(&self.log).ok()??, Identity::at(&self.index).ok()??);
        Some(LogInUse { log: log.identity, index: index.identity })
    }

    /// To be called when the writer closes its connection: SQLite may delete the log, and make another.
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

    /// Sees to it that what was committed is on the disk, where commits are not synced.
    pub(crate) fn sync_log(&self) -> Result<(), NotSynced> {
        match self.durability {
            Durability::Full => return Ok(()),
            Durability::Normal => {}
        }
        // Unlike on the file itself, SQLite has no locks on it that would be lost when it is closed.
        let synced = OpenOptions::new().write(true).open(&self.log).and_then(|log| log.sync_all());
        match synced {
            // Whoever closed the last connection has synced it and folded it into the file.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            synced => synced.map_err(NotSynced),
        }
    }

    /// The permissions of the file, if they can be read.
    pub(crate) fn permissions(&self) -> Option<fs::Permissions> {
        fs::metadata(&self.path).ok().map(|found| found.permissions())
    }

    /// Whether a path is that of the file, also if one of them is a link.
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

    /// A connection for reading.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let connection = match self.unwritten {
            Some(_) => self.glance()?,
            None => self.connect(self.flags_to_read())?,
        };
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    /// SQLite makes a log to read a file, and removes it with the last connection only if that may write.
    /// It then also carries the log over into the file, so a log that holds something is opened to be
    /// read alone: it stays as it is, and so does the file. Where the file may not be written, SQLite
    /// opens it to be read.
    fn flags_to_read(&self) -> OpenFlags {
        match self.log_with_content() {
            Some(_) => OpenFlags::SQLITE_OPEN_READ_ONLY,
            None => OpenFlags::SQLITE_OPEN_READ_WRITE,
        }
    }

    /// A connection for writing.
    pub(crate) fn writer(&self) -> rusqlite::Result<Connection> {
        self.writer_with(OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn connect(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        // No mutex inside SQLite: a connection is only ever used by one thread at a time.
        Connection::open_with_flags(&self.path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .and_then(without_trust)
    }

    /// A connection that creates a missing database file with the permissions of the `model` file.
    fn connect_as(&self, model: &PrivateFile, flags: OpenFlags) -> rusqlite::Result<Connection> {
        let mut address = address_of(&self.path);
        address.push_str("?modeof=");
        push_escaped(&mut address, &model.0);
        let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(address, flags).and_then(without_trust)
    }

    /// A temporary file of mode 0600 next to the database, as the model for a new database file. `None`
    /// if the database exists, and if the model cannot be created: SQLite then reports the reason.
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
        connection.busy_timeout(PATIENCE)?;
        let synchronous = match self.durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        // These pragmas answer with the new value.
        connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        let limit = format!("PRAGMA journal_size_limit = {LARGEST_IDLE_LOG}");
        connection.query_row(&limit, [], |_| Ok(()))?;
        // All that are ever used: one that is prepared anew costs as much as an append.
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }

    fn path_buf(&self) -> PathBuf {
        self.path.to_path_buf()
    }
}

/// A file as SQLite's addresses name it.
fn address_of(path: &Path) -> String {
    let mut address = "file:".to_owned();
    if !path.starts_with("/") {
        address.push_str("///");
    }
    push_escaped(&mut address, path);
    address
}

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

/// What was acknowledged may not be on the disk.
#[derive(Debug, thiserror::Error)]
#[error(
    "the write-ahead log could not be synced: the last writes are stored, but a loss of power may \
     undo them; open the store again and call `checkpoint`"
)]
pub(crate) struct NotSynced(#[source] io::Error);
