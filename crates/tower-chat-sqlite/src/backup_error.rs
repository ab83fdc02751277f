//! The errors of a backup.

use std::path::PathBuf;

use tower_chat_core::{Classified, is_retryable, store::StoreError};

use crate::OpenError;

/// A store could not be copied. Usually no file was created at the path of the copy, and an
/// existing file at this path was not changed. There is one exception: if the folder of the
/// complete copy could not be synced, the copy is at its path, but a power loss may remove the
/// copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// A file exists at the path of the copy, and [`Backup::replacing`](crate::Backup::replacing)
    /// does not allow replacing it.
    #[error(
        "cannot copy the store to `{}`, because the file exists: choose another path, or allow the \
         backup to replace it",
        path.display()
    )]
    Exists {
        /// The path of the copy.
        path: PathBuf,
    },
    /// A write-ahead log or journal exists whose name is the path of the copy with `-wal` or
    /// `-journal` appended. A database at this path is open, or was not closed. SQLite would apply
    /// the log or journal to the copy.
    #[error(
        "cannot copy the store to `{}`, because `{}` exists: a database is open there, or was not \
         closed; choose another path",
        path.display(),
        log.display()
    )]
    InUse {
        /// The path of the copy.
        path: PathBuf,
        /// The path of the log or journal.
        log: PathBuf,
    },
    /// The copy would replace the file of the store, or the log, the log's index or the journal of
    /// a database.
    #[error(
        "cannot copy the store to `{}`, which is a file of the database `{}`: choose another path",
        path.display(),
        database.display()
    )]
    OfADatabase {
        /// The path of the copy.
        path: PathBuf,
        /// The path of the database that the copy would damage.
        database: PathBuf,
    },
    /// The folder of the copy does not exist.
    #[error(
        "cannot copy the store to `{}`, because its folder does not exist: create the folder, or \
         check the path",
        path.display()
    )]
    NoFolder {
        /// The path of the copy.
        path: PathBuf,
    },
    /// The process has no permission to create a file in the folder of the copy.
    #[error(
        "cannot copy the store to `{}`, because its folder is not writable: change its permissions, \
         or choose another path",
        path.display()
    )]
    ReadOnly {
        /// The path of the copy.
        path: PathBuf,
        /// The system's error.
        source: Classified,
    },
    /// The disk of the copy is full.
    #[error(
        "cannot copy the store to `{}`, because its disk is full: free space there, or choose \
         another path",
        path.display()
    )]
    StorageFull {
        /// The path of the copy.
        path: PathBuf,
        /// The system's or SQLite's error.
        source: Classified,
    },
    /// The file to copy cannot be opened as a store.
    #[error("cannot copy the store, because it cannot be opened")]
    Open(#[source] OpenError),
    /// The store cannot be read.
    #[error("cannot copy the store, because it cannot be read")]
    Store(#[source] StoreError),
    /// Any other error of the file system, SQLite or the runtime.
    #[error("cannot copy the store to `{}`: see the cause", path.display())]
    Io {
        /// The path of the copy.
        path: PathBuf,
        /// The cause.
        source: Classified,
    },
}

impl BackupError {
    /// Returns whether a repeated backup with the same options may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::StorageFull { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::Io { source, .. } => is_retryable(source) == Some(true),
            Self::Open(error) => error.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            Self::Exists { .. }
            | Self::InUse { .. }
            | Self::OfADatabase { .. }
            | Self::NoFolder { .. } => false,
        }
    }
}
