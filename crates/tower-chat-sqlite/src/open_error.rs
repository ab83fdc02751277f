//! The errors of opening a store.

use std::path::PathBuf;

use tokio::sync::Semaphore;
use tower_chat_core::{Classified, is_retryable};

/// A store could not be opened. A file that is not a store was not changed. A file that is a store
/// may have been created or migrated before the error occurred.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist, and the options do not allow creating it.
    #[error(
        "there is no conversation store at `{}`: check the path, or allow creating it",
        path.display()
    )]
    Missing {
        /// The store's path.
        path: PathBuf,
    },
    /// The folder of the file does not exist.
    #[error("the folder of `{}` does not exist: create the folder, or check the path", path.display())]
    NoFolder {
        /// The store's path.
        path: PathBuf,
    },
    /// The file is not a SQLite database.
    #[error(
        "`{}` is not a SQLite database: choose another path, or move the file",
        path.display()
    )]
    NotADatabase {
        /// The store's path.
        path: PathBuf,
    },
    /// The file is a SQLite database of another program.
    #[error(
        "`{}` is a SQLite database, but not a conversation store: choose another path",
        path.display()
    )]
    NotOurs {
        /// The store's path.
        path: PathBuf,
    },
    /// The header identifies the file as a store, but its schema contains an object that no release
    /// creates: a view, a trigger, an index, a table, or a table with other columns. The store is
    /// not opened, so that SQLite executes no code of this object.
    #[error(
        "the schema of `{}` contains {object}, which no release creates: remove it if you have added it; \
         otherwise restore the file from a trusted copy",
        path.display()
    )]
    Altered {
        /// The store's path.
        path: PathBuf,
        /// The unknown object of the schema.
        object: String,
    },
    /// A newer release wrote the file.
    #[error(
        "`{}` has schema version {version}, and this release supports versions up to {supported}: \
         open it with the newer release that wrote it",
        path.display()
    )]
    Newer {
        /// The store's path.
        path: PathBuf,
        /// The schema version of the file.
        version: i64,
        /// The newest supported schema version.
        supported: i64,
    },
    /// An older release wrote the file, and a store that is opened read-only cannot migrate it.
    #[error(
        "`{}` has schema version {version} and must be migrated to version {supported}: open it once \
         for writing",
        path.display()
    )]
    Older {
        /// The store's path.
        path: PathBuf,
        /// The schema version of the file.
        version: i64,
        /// The required schema version.
        supported: i64,
    },
    /// The process has no permission to write the file, or to create the write-ahead log in its
    /// folder.
    #[error(
        "`{}` or its folder is not writable: change the permissions, or open the store read-only",
        path.display()
    )]
    ReadOnly {
        /// The store's path.
        path: PathBuf,
    },
    /// The write-ahead log has content, and the process has no permission to write the folder. To
    /// read the log, SQLite must create an index of the log in the folder.
    #[error(
        "`{}` cannot be opened, because `{}` has content and the folder is not writable: change the \
         permissions, close the program that writes the file, or copy both files to a writable \
         folder",
        path.display(),
        log.display()
    )]
    UnreadLog {
        /// The store's path.
        path: PathBuf,
        /// The path of the log.
        log: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "`{}` is damaged: restore it from a backup, or save the readable data with `sqlite3 FILE .recover`",
        path.display()
    )]
    Corrupt {
        /// The store's path.
        path: PathBuf,
        /// The error of SQLite.
        source: Classified,
    },
    /// Another process had a lock on the file for longer than the lock timeout.
    #[error("`{}` is locked by another process: try again later", path.display())]
    Locked {
        /// The store's path.
        path: PathBuf,
        /// SQLite's error.
        source: Classified,
    },
    /// The disk is full, so that the file cannot be created or migrated, or its write-ahead log
    /// cannot be created.
    #[error("the disk of `{}` is full: free space there, and open the store again", path.display())]
    StorageFull {
        /// The store's path.
        path: PathBuf,
        /// SQLite's error.
        source: Classified,
    },
    /// A setting is out of its range.
    #[error(
        "the option `{option}` cannot be {value}: use a value from 1 to {}",
        Semaphore::MAX_PERMITS
    )]
    InvalidOption {
        /// The setting.
        option: &'static str,
        /// The value of the setting.
        value: usize,
    },
    /// Any other error of the file system, SQLite or the runtime.
    #[error("`{}` cannot be opened: see the cause", path.display())]
    Io {
        /// The store's path.
        path: PathBuf,
        /// The cause.
        source: Classified,
    },
}

impl OpenError {
    /// Returns whether a repeated attempt to open the store with the same options may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Locked { source, .. }
            | Self::StorageFull { source, .. }
            | Self::Corrupt { source, .. }
            | Self::Io { source, .. } => is_retryable(source) == Some(true),
            Self::Missing { .. }
            | Self::NoFolder { .. }
            | Self::NotADatabase { .. }
            | Self::NotOurs { .. }
            | Self::Altered { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::ReadOnly { .. }
            | Self::UnreadLog { .. }
            | Self::InvalidOption { .. } => false,
        }
    }
}
