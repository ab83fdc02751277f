//! Why a store was not copied.

use std::path::PathBuf;

use tower_chat_core::{BoxError, store::StoreError};

use crate::OpenError;

/// A store could not be copied. There is no new file, and what was at the path is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is a file, and it was not to be replaced.
    #[error("there is a file `{}` already: give another path, or allow replacing it", path.display())]
    Exists {
        /// Where the copy was to be.
        path: PathBuf,
    },
    /// The log of another database lies where that of the copy would: it is open, or was not
    /// closed, and what its log holds would be taken for part of the copy.
    #[error(
        "`{}` cannot become the copy, since there is `{}`: a database is open there, or was not \
         closed; give another path",
        path.display(),
        log.display()
    )]
    InUse {
        /// Where the copy was to be.
        path: PathBuf,
        /// The log beside it.
        log: PathBuf,
    },
    /// The copy would take the place of the store, or of a file that SQLite has beside a database.
    #[error(
        "`{}` belongs to the database `{}`: give another path",
        path.display(),
        database.display()
    )]
    OfADatabase {
        /// Where the copy was to be.
        path: PathBuf,
        /// The database.
        database: PathBuf,
    },
    /// The folder in which the copy is to be does not exist.
    #[error("the folder of `{}` does not exist: make it first, or check the path", path.display())]
    NoFolder {
        /// Where the copy was to be.
        path: PathBuf,
    },
    /// No file can be made in the folder of the copy.
    #[error(
        "`{}` cannot be written: change the permissions of its folder, or give another path",
        path.display()
    )]
    ReadOnly {
        /// Where the copy was to be.
        path: PathBuf,
        /// The system's error.
        source: BoxError,
    },
    /// There is no room for the copy.
    #[error("there is no room on the disk of `{}`: make room, or give another path", path.display())]
    StorageFull {
        /// Where the copy was to be.
        path: PathBuf,
        /// The system's or SQLite's error.
        source: BoxError,
    },
    /// The file that was to be copied is none that can be.
    #[error("the store cannot be opened")]
    Open(#[source] OpenError),
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[source] StoreError),
    /// Anything else that the file system, SQLite or the runtime reports.
    #[error("`{}` cannot be written: see the cause", path.display())]
    Io {
        /// Where the copy was to be.
        path: PathBuf,
        /// The cause.
        source: BoxError,
    },
}

impl BackupError {
    /// Whether the copy may succeed when it is tried again unchanged.
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
