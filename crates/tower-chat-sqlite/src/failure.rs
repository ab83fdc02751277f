//! What SQLite's errors mean, in one place.

use std::{fmt, path::Path, sync::Arc};

use rusqlite::{ErrorCode, ffi};
use tower_chat_core::{SharedError, store::StoreError};

use crate::{FileMoved, OpenError};

/// An error of SQLite, with the file it happened to. Cloned for every write of a failed group.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    path: Arc<Path>,
    source: Arc<rusqlite::Error>,
}

/// What an error means for whoever asked.
enum Meaning {
    Locked,
    ReadOnly,
    Damaged,
    NotADatabase,
    /// There is no room on the disk.
    Full,
    /// The file is not where it was.
    Moved,
    /// It may pass; what the reader can do.
    Passing(&'static str),
    Lasting,
}

impl Failure {
    pub(crate) fn new(path: &Arc<Path>, source: rusqlite::Error) -> Self {
        Self { path: path.clone(), source: Arc::new(source) }
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.meaning(), Meaning::Locked)
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self.meaning(), Meaning::Full)
    }

    /// The error of a store that is open.
    pub(crate) fn store_error(&self, action: &'static str) -> StoreError {
        match self.meaning() {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Damaged | Meaning::NotADatabase => StoreError::Corrupt {
                reason: format!("`{}`: {}", self.path.display(), self.source),
            },
            Meaning::Full => {
                StoreError::StorageFull { action, source: SharedError::new(self.clone()) }
            }
            Meaning::Moved => StoreError::backend(action, true, self.moved()),
            Meaning::Locked | Meaning::Passing(_) => {
                StoreError::backend(action, true, self.clone())
            }
            Meaning::Lasting => StoreError::backend(action, false, self.clone()),
        }
    }

    /// The error of a store that is being opened.
    pub(crate) fn open_error(&self) -> OpenError {
        let path = self.path.to_path_buf();
        match self.meaning() {
            Meaning::ReadOnly => OpenError::ReadOnly { path },
            Meaning::Damaged => OpenError::Corrupt { path, source: self.clone().into() },
            Meaning::NotADatabase => OpenError::NotADatabase { path },
            Meaning::Locked => OpenError::Locked { path, source: self.clone().into() },
            Meaning::Full => OpenError::StorageFull { path, source: self.clone().into() },
            Meaning::Moved => OpenError::Io { path, source: self.moved().into() },
            Meaning::Passing(_) | Meaning::Lasting => {
                OpenError::Io { path, source: self.clone().into() }
            }
        }
    }

    fn moved(&self) -> FileMoved {
        FileMoved { path: self.path.to_path_buf() }
    }

    fn meaning(&self) -> Meaning {
        match self.source.sqlite_error().map(|error| error.extended_code) {
            Some(ffi::SQLITE_READONLY_DBMOVED) => return Meaning::Moved,
            // The index of the write-ahead log could not be made larger.
            Some(ffi::SQLITE_IOERR_SHMSIZE) => return Meaning::Full,
            Some(_) | None => {}
        }
        match self.source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Meaning::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Meaning::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt) => Meaning::Damaged,
            Some(ErrorCode::NotADatabase) => Meaning::NotADatabase,
            Some(ErrorCode::DiskFull) => Meaning::Full,
            Some(ErrorCode::CannotOpen) => {
                Meaning::Passing("check that the file is still there and files can be opened")
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed) => {
                Meaning::Passing("check its disk")
            }
            Some(ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted) => {
                Meaning::Passing("try again")
            }
            Some(_) | None => Meaning::Lasting,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLite failed on `{}`", self.path.display())?;
        match self.meaning() {
            Meaning::Locked => f.write_str(", which another process holds: try again"),
            Meaning::Full => f.write_str(": make room on its disk"),
            Meaning::Passing(advice) => write!(f, ": {advice}"),
            Meaning::Moved
            | Meaning::ReadOnly
            | Meaning::Damaged
            | Meaning::NotADatabase
            | Meaning::Lasting => Ok(()),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
