//! What SQLite's errors mean, in one place.

use std::{fmt, path::Path, sync::Arc};

use rusqlite::ErrorCode;
use tower_chat_core::store::StoreError;

use crate::OpenError;

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

    /// The error of a store that is open.
    pub(crate) fn store_error(&self, action: &'static str) -> StoreError {
        match self.meaning() {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Damaged | Meaning::NotADatabase => StoreError::Corrupt {
                reason: format!("`{}`: {}", self.path.display(), self.source),
            },
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
            Meaning::Passing(_) | Meaning::Lasting => {
                OpenError::Io { path, source: self.clone().into() }
            }
        }
    }

    fn meaning(&self) -> Meaning {
        match self.source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Meaning::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Meaning::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt) => Meaning::Damaged,
            Some(ErrorCode::NotADatabase) => Meaning::NotADatabase,
            Some(ErrorCode::DiskFull) => Meaning::Passing("make room on its disk"),
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
            Meaning::Passing(advice) => write!(f, ": {advice}"),
            Meaning::ReadOnly | Meaning::Damaged | Meaning::NotADatabase | Meaning::Lasting => {
                Ok(())
            }
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
