//! The errors of a backup.

use std::path::PathBuf;

use tower_chat_core::{BoxError, store::StoreError};

use crate::OpenError;

/// A store could not be copied. No new file was created, and an existing file at the path is
/// unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file exists, and replacing it was not allowed.
    #[error("there is a file `{}` already: give another path, or allow replacing it", path.display())]
    Exists {
        /// The path of the copy.
        path: PathBuf,
    },
    /// There is a write-ahead log of another database beside the path of the copy. That database is
    /// open or was not closed. SQLite would apply the log to the copy.
    #[error(
        "`{}` cannot become the copy, since there is `{}`: a database is open there, or was not \
         closed; give another path",
        path.display(),
        log.display()
    )]
    InUse {
        /// The path of the copy.
        path: PathBuf,
        /// The log beside it.
        log: PathBuf,
    },
    /// The copy would replace the store, or a file that SQLite keeps beside a database.
    #[error(
        "`{}` belongs to the database `{}`: give another path",
        path.display(),
        database.display()
    )]
    OfADatabase {
        /// The path of the copy.
        path: PathBuf,
        /// The database.
        database: PathBuf,
    },
    /// The folder of the copy does not exist.
    #[error("the folder of `{}` does not exist: make it first, or check the path", path.display())]
    NoFolder {
        /// The path of the copy.
        path: PathBuf,
    },
    /// No file can be created in the folder of the copy.
    #[error(
        "`{}` cannot be written: change the permissions of its folder, or give another path",
        path.display()
    )]
    ReadOnly {
        /// The path of the copy.
        path: PathBuf,
        /// The system's error.
        source: BoxError,
    },
    /// The disk of the copy is full.
    #[error("there is no room on the disk of `{}`: make room, or give another path", path.display())]
    StorageFull {
        /// The path of the copy.
        path: PathBuf,
        /// The system's or SQLite's error.
        source: BoxError,
    },
    /// The file to copy cannot be opened as a store.
    #[error("the store cannot be opened")]
    Open(#[source] OpenError),
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[source] StoreError),
    /// Any other error of the file system, SQLite or the runtime.
    #[error("`{}` cannot be written: see the cause", path.display())]
    Io {
        /// The path of the copy.
        path: PathBuf,
        /// The cause.
        source: BoxError,
    },
}

impl BackupError {
    /// Returns whether the backup may succeed if it is repeated unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::StorageFull { .. } => true,
            Self::Open(error) => error.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            Self::Exists { .. }
            | Self::InUse { .. }
            | Self::OfADatabase { .. }
            | Self::NoFolder { .. }
            | Self::ReadOnly { .. }
            | Self::Io { .. } => false,
        }
    }
}
