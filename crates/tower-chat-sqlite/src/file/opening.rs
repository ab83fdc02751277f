//! Checking and opening a file.

use std::{
    fs,
    io::{ErrorKind, Read},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use tower_chat_core::Classified;

use super::{LOCK_TIMEOUT, StoreFile, address_of};
use crate::{
    OpenError, SqliteOptions,
    schema::{self, Content, Difference},
};

impl StoreFile {
    /// Returns the size of the file in bytes, or `None` if it does not exist.
    pub(super) fn size_on_disk(&self) -> Result<Option<u64>, OpenError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
            Ok(_) => Err(OpenError::NotADatabase { path: self.path_buf() }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match self.path.parent().map(fs::metadata) {
                    Some(Ok(folder)) if folder.is_dir() => Ok(None),
                    _ => Err(OpenError::NoFolder { path: self.path_buf() }),
                }
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                Err(OpenError::NoFolder { path: self.path_buf() })
            }
            Err(error) => {
                let source = Classified::permanent(error);
                Err(OpenError::Io { path: self.path_buf(), source })
            }
        }
    }

    /// Refuses a file that is not a store, before SQLite can change the file.
    pub(super) fn check_before_use(&self, options: &SqliteOptions) -> Result<(), OpenError> {
        let failed = |error| self.failure(error).open_error();
        let look =
            || self.reader().and_then(|mut reader| schema::content(&mut reader)).map_err(failed);
        let content = match self
            .open_without_log()
            .and_then(|mut connection| schema::content(&mut connection))
        {
            // The write-ahead log may contain newer pages, so the file is read again with its log.
            Ok(Content::Empty | Content::Altered(_)) => look()?,
            Ok(content) => content,
            // A power loss interrupted the creation of the store. Opening the store for writing
            // restores the file from the journal.
            Err(error) if is_half_written(&error) && !options.read_only && self.has_journal() => {
                return Ok(());
            }
            // The file may only appear damaged, because another process is writing to it. The file
            // is therefore read again, with locks.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => look()?,
            Err(error) => return Err(failed(error)),
        };
        match content {
            Content::Empty if options.read_only => {
                Err(OpenError::Missing { path: self.path_buf() })
            }
            Content::Empty | Content::Store { .. } => Ok(()),
            Content::Altered(difference) => Err(self.altered(difference)),
            Content::Foreign => Err(OpenError::NotOurs { path: self.path_buf() }),
        }
    }

    fn altered(&self, difference: Difference) -> OpenError {
        let path = self.path_buf();
        match difference {
            Difference::Missing(object) => {
                let source = Classified::permanent(format!("{object} is missing"));
                OpenError::Corrupt { path, source }
            }
            Difference::Unknown(object) => OpenError::Altered { path, object },
        }
    }

    /// Returns whether a rollback journal of an unfinished transaction exists. SQLite writes a
    /// journal only before the file is switched to WAL mode. The journal can be opened without
    /// SQLite, because SQLite has no locks on it.
    fn has_journal(&self) -> bool {
        const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
        let mut path = self.path.as_os_str().to_owned();
        path.push("-journal");
        let mut first = [0; MAGIC.len()];
        let read = fs::File::open(path).and_then(|mut journal| journal.read_exact(&mut first));
        read.is_ok() && first == MAGIC
    }

    /// Opens a connection that reads only the file itself, without its write-ahead log, and takes
    /// no lock. The process must not open the file without SQLite, because closing it would release
    /// all locks of the process on it.
    pub(super) fn open_without_log(&self) -> rusqlite::Result<Connection> {
        let mut address = address_of(&self.path);
        address.push_str("?immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(address, flags).and_then(without_trust)
    }

    /// Opens a connection for reading, and checks that the file is a store of this version.
    pub(super) fn open_checked_reader(&self) -> Result<Connection, OpenError> {
        let failed = |error| self.failure(error).open_error();
        let mut connection = self.reader().map_err(failed)?;
        self.check_content(schema::content(&mut connection).map_err(failed)?)?;
        self.check_tables(&connection)?;
        Ok(connection)
    }

    /// Opens a connection for writing, and migrates a file of an older version. Waits up to
    /// [`LOCK_TIMEOUT`] for other processes.
    pub(super) fn open_current_writer(&self, create: bool) -> Result<Connection, OpenError> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
        // SQLite does not always wait for other connections when it switches the file to WAL mode.
        while_locked(LOCK_TIMEOUT, || self.try_open_current_writer(flags))
    }

    fn try_open_current_writer(&self, flags: OpenFlags) -> Result<Connection, OpenError> {
        let failed = |error| self.failure(error).open_error();
        // The folder exists, and the file exists or may be created. The error `CannotOpen`
        // therefore means that the process has no permission to write.
        let failed_to_write = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen) => OpenError::ReadOnly { path: self.path_buf() },
            _ => failed(error),
        };
        // SQLite creates the file, its log and the log's index with the permissions of this model.
        let model = if flags.contains(OpenFlags::SQLITE_OPEN_CREATE) { self.model() } else { None };
        let opened = match &model {
            Some(model) => self.connect_as(model, flags),
            None => self.connect(flags),
        };
        let opened = opened.and_then(|connection| self.prepare_writer(connection));
        let mut connection = opened.map_err(failed_to_write)?;
        if connection.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
            return Err(OpenError::ReadOnly { path: self.path_buf() });
        }
        let mut content = schema::content(&mut connection).map_err(failed_to_write)?;
        let is_behind = match content {
            Content::Empty => true,
            Content::Store { version } => version < schema::VERSION,
            Content::Altered(_) | Content::Foreign => false,
        };
        if is_behind {
            // The tables are created before the file is switched to WAL mode. Therefore the header
            // of the file always either shows an empty database, or identifies a store.
            content = schema::migrate(&mut connection).map_err(failed_to_write)?;
        }
        self.check_content(content)?;
        let mode: String = connection
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .map_err(failed_to_write)?;
        if mode != "wal" {
            let source = format!("its file system does not allow WAL mode (got {mode:?})");
            let source = Classified::permanent(source);
            return Err(OpenError::Io { path: self.path_buf(), source });
        }
        self.check_tables(&connection)?;
        Ok(connection)
    }

    fn check_content(&self, content: Content) -> Result<(), OpenError> {
        let path = self.path_buf();
        let supported = schema::VERSION;
        match content {
            Content::Store { version } if version > supported => {
                Err(OpenError::Newer { path, version, supported })
            }
            Content::Store { version } if version < supported => {
                Err(OpenError::Older { path, version, supported })
            }
            Content::Store { .. } => Ok(()),
            Content::Altered(difference) => Err(self.altered(difference)),
            Content::Empty => Err(OpenError::Missing { path }),
            Content::Foreign => Err(OpenError::NotOurs { path }),
        }
    }

    /// Reads the largest key of three tables, so that opening the store reports some damage.
    fn check_tables(&self, connection: &Connection) -> Result<(), OpenError> {
        let sql = "SELECT (SELECT max(id) FROM conversations), (SELECT max(place) FROM messages),
            (SELECT max(place) FROM tool_invocations)";
        connection.query_row(sql, [], |_| Ok(())).map_err(|error| {
            let is_missing = error.sqlite_error_code() == Some(ErrorCode::Unknown);
            let failure = self.failure(error);
            if is_missing {
                let source = Classified::permanent(failure);
                OpenError::Corrupt { path: self.path_buf(), source }
            } else {
                failure.open_error()
            }
        })
    }
}

/// Restricts a connection, because the schema of the file may be hostile: its expressions may call
/// only functions that SQLite considers harmless, and views cannot be read.
pub(super) fn without_trust(connection: Connection) -> rusqlite::Result<Connection> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    Ok(connection)
}

/// Returns whether an interrupted transaction can be the cause of an error.
fn is_half_written(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Calls a function, and repeats the call while another process has a lock on the file.
pub(crate) fn while_locked<T>(
    lock_timeout: Duration,
    mut attempt: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let deadline = Instant::now() + lock_timeout;
    loop {
        match attempt() {
            Err(OpenError::Locked { .. }) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}
