//! Maps errors of SQLite to the errors of a store.

use std::{fmt, path::Path, sync::Arc};

use rusqlite::{ErrorCode, ffi};
use tower_chat_core::{Classified, SharedError, store::StoreError};

use crate::{FileChange, FileMoved, OpenError, WritePanicked};

/// The cause of a failed operation on the file, with the path of the file.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    path: Arc<Path>,
    cause: Arc<Cause>,
}

#[derive(Debug)]
enum Cause {
    Sqlite(rusqlite::Error),
    Changed(FileMoved),
    Panicked(WritePanicked),
}

/// The class of a failure, which determines the error that the store reports.
enum Meaning {
    Locked,
    ReadOnly,
    Damaged,
    NotADatabase,
    /// The disk is full.
    Full,
    /// The file was moved or replaced.
    Moved(FileMoved),
    /// A retry may succeed. The text is advice for an operator.
    Transient(&'static str),
    /// A panic.
    Panicked(WritePanicked),
    Permanent,
}

impl Failure {
    pub(crate) fn new(path: &Arc<Path>, source: rusqlite::Error) -> Self {
        Self { path: path.clone(), cause: Arc::new(Cause::Sqlite(source)) }
    }

    pub(crate) fn changed(path: &Arc<Path>, change: FileChange) -> Self {
        let moved = FileMoved::new(&**path, change);
        Self { path: path.clone(), cause: Arc::new(Cause::Changed(moved)) }
    }

    pub(crate) fn panicked(path: &Arc<Path>, panic: WritePanicked) -> Self {
        Self { path: path.clone(), cause: Arc::new(Cause::Panicked(panic)) }
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.meaning(), Meaning::Locked)
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self.meaning(), Meaning::Full)
    }

    /// Returns the error of an open store that failed to do `action`.
    pub(crate) fn store_error(&self, action: &'static str) -> StoreError {
        match self.meaning() {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Damaged | Meaning::NotADatabase => {
                StoreError::Corrupt { reason: format!("`{}`: {}", self.path.display(), self.cause) }
            }
            Meaning::Full => {
                StoreError::StorageFull { action, source: SharedError::new(self.clone()) }
            }
            Meaning::Moved(moved) => StoreError::backend(action, true, moved),
            Meaning::Locked | Meaning::Transient(_) => {
                StoreError::backend(action, true, self.clone())
            }
            Meaning::Panicked(panic) => StoreError::backend(action, false, panic),
            Meaning::Permanent => StoreError::backend(action, false, self.clone()),
        }
    }

    /// Returns the error of a store that cannot be opened because of this failure.
    pub(crate) fn open_error(&self) -> OpenError {
        let path = self.path.to_path_buf();
        let permanent = Classified::permanent(self.clone());
        match self.meaning() {
            Meaning::ReadOnly => OpenError::ReadOnly { path },
            Meaning::Damaged => OpenError::Corrupt { path, source: permanent },
            Meaning::NotADatabase => OpenError::NotADatabase { path },
            Meaning::Locked => {
                OpenError::Locked { path, source: Classified::retryable(self.clone()) }
            }
            Meaning::Full => {
                OpenError::StorageFull { path, source: Classified::retryable(self.clone()) }
            }
            Meaning::Moved(moved) => OpenError::Io { path, source: Classified::permanent(moved) },
            Meaning::Transient(_) | Meaning::Panicked(_) | Meaning::Permanent => {
                OpenError::Io { path, source: permanent }
            }
        }
    }

    fn meaning(&self) -> Meaning {
        let source = match &*self.cause {
            Cause::Sqlite(source) => source,
            Cause::Changed(moved) => return Meaning::Moved(moved.clone()),
            Cause::Panicked(panic) => return Meaning::Panicked(panic.clone()),
        };
        match source.sqlite_error().map(|error| error.extended_code) {
            Some(ffi::SQLITE_READONLY_DBMOVED) => {
                return Meaning::Moved(FileMoved::new(&*self.path, FileChange::Moved));
            }
            // The index of the write-ahead log could not grow.
            Some(ffi::SQLITE_IOERR_SHMSIZE) => return Meaning::Full,
            Some(_) | None => {}
        }
        if is_no_value_of_ours(source) {
            return Meaning::Damaged;
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Meaning::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Meaning::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt) => Meaning::Damaged,
            Some(ErrorCode::NotADatabase) => Meaning::NotADatabase,
            Some(ErrorCode::DiskFull) => Meaning::Full,
            Some(ErrorCode::CannotOpen) => Meaning::Transient(
                "check that the file exists, and that the process can open more files",
            ),
            Some(ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed) => {
                Meaning::Transient("check the disk of the file")
            }
            Some(ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted) => {
                Meaning::Transient("try again")
            }
            Some(_) | None => Meaning::Permanent,
        }
    }
}

/// Returns whether an error means that a column contains a value that no release writes.
fn is_no_value_of_ours(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLite failed on `{}`", self.path.display())?;
        match self.meaning() {
            Meaning::Locked => f.write_str(", because another process has locked it: try again"),
            Meaning::Full => f.write_str(", because its disk is full: free space there"),
            Meaning::Transient(advice) => write!(f, ": {advice}"),
            Meaning::Moved(_)
            | Meaning::ReadOnly
            | Meaning::Damaged
            | Meaning::NotADatabase
            | Meaning::Panicked(_)
            | Meaning::Permanent => Ok(()),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match &*self.cause {
            Cause::Sqlite(source) => source,
            Cause::Changed(moved) => moved,
            Cause::Panicked(panic) => panic,
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(source) => source.fmt(f),
            Self::Changed(moved) => moved.fmt(f),
            Self::Panicked(panic) => panic.fmt(f),
        }
    }
}
