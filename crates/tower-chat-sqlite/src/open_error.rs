//! Why a store cannot be opened.

use std::path::PathBuf;

use tower_chat_core::BoxError;

/// A store could not be opened. The file is left as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no file, and none was to be made.
    #[error(
        "there is no conversation store at `{}`: check the path, or allow creating it",
        path.display()
    )]
    Missing {
        /// The store's path.
        path: PathBuf,
    },
    /// The folder in which the file is, or is to be, does not exist.
    #[error("the folder of `{}` does not exist: make it first, or check the path", path.display())]
    NoFolder {
        /// The store's path.
        path: PathBuf,
    },
    /// What is there is no SQLite database.
    #[error(
        "`{}` is not a SQLite database: give another path, or move the file away",
        path.display()
    )]
    NotADatabase {
        /// The store's path.
        path: PathBuf,
    },
    /// It is a SQLite database of some other program.
    #[error(
        "`{}` is a SQLite database, but not a conversation store: give the store a file of its own",
        path.display()
    )]
    NotOurs {
        /// The store's path.
        path: PathBuf,
    },
    /// It says that it is a store, and its schema has something that no release makes: a view, a trigger, an
    /// index, a table, or a table with other columns. Nothing of it is run.
    #[error(
        "`{}` has in its schema {object}, which no release makes so: if you have added that, remove it; \
         otherwise restore the file from a copy that you trust",
        path.display()
    )]
    Altered {
        /// The store's path.
        path: PathBuf,
        /// What no release makes.
        object: String,
    },
    /// A newer release wrote it.
    #[error(
        "`{}` has schema version {version}, and this release knows versions up to {supported}: \
         open it with the newer release that wrote it",
        path.display()
    )]
    Newer {
        /// The store's path.
        path: PathBuf,
        /// The version it has.
        version: i64,
        /// The newest version that can be opened.
        supported: i64,
    },
    /// An older release wrote it, and it cannot be brought up to date because it was opened
    /// read-only.
    #[error(
        "`{}` has schema version {version} and must be brought up to version {supported}: \
         open it once for writing",
        path.display()
    )]
    Older {
        /// The store's path.
        path: PathBuf,
        /// The version it has.
        version: i64,
        /// The version it needs.
        supported: i64,
    },
    /// The file, or the folder that must hold its write-ahead log, cannot be written.
    #[error(
        "`{}` or its folder cannot be written: change the permissions, or open it read-only",
        path.display()
    )]
    ReadOnly {
        /// The store's path.
        path: PathBuf,
    },
    /// The folder cannot be written, and the write-ahead log holds changes: SQLite makes an index of
    /// the log beside it to read them.
    #[error(
        "`{}` cannot be read where it is: changes are in `{}`, and its folder cannot be written: \
         let the program that writes it close it, copy both files to a folder that can be written, or \
         change the permissions",
        path.display(),
        log.display()
    )]
    UnreadLog {
        /// The store's path.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "`{}` is damaged: restore it from a backup, or save what can be read with \
         `sqlite3 FILE .recover`",
        path.display()
    )]
    Corrupt {
        /// The store's path.
        path: PathBuf,
        /// What SQLite found.
        source: BoxError,
    },
    /// Another process holds the file.
    #[error("`{}` is locked by another process: try again when it is done", path.display())]
    Locked {
        /// The store's path.
        path: PathBuf,
        /// SQLite's error.
        source: BoxError,
    },
    /// There is no room on the disk to make the file, to bring it up to date, or for its
    /// write-ahead log.
    #[error("there is no room on the disk of `{}`: make room, and open it again", path.display())]
    StorageFull {
        /// The store's path.
        path: PathBuf,
        /// SQLite's error.
        source: BoxError,
    },
    /// A setting is out of its range.
    #[error("the option `{option}` cannot be {value}: it must be at least 1 and no absurd number")]
    InvalidOption {
        /// The setting.
        option: &'static str,
        /// The value it was given.
        value: usize,
    },
    /// Anything else that the file system, SQLite or the runtime reports.
    #[error("`{}` cannot be opened: see the cause", path.display())]
    Io {
        /// The store's path.
        path: PathBuf,
        /// The cause.
        source: BoxError,
    },
}

impl OpenError {
    /// Whether opening may succeed when it is tried again unchanged.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::StorageFull { .. } => true,
            Self::Missing { .. }
            | Self::NoFolder { .. }
            | Self::NotADatabase { .. }
            | Self::NotOurs { .. }
            | Self::Altered { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::ReadOnly { .. }
            | Self::UnreadLog { .. }
            | Self::Corrupt { .. }
            | Self::InvalidOption { .. }
            | Self::Io { .. } => false,
        }
    }
}
