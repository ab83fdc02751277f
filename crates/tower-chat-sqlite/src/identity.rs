//! The identity of a store's files, by which the store detects that its files were moved or
//! replaced.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// The database file of an open store, or its log, was moved, deleted, replaced or truncated. The
/// error also reports that another program wrote to a file which the store reads without a log
/// ([`FileChange::Written`]).
///
/// SQLite does not detect that its files were moved or truncated. SQLite would continue to write to
/// a file that is no longer at its path, or after a gap in the log, and these writes would be lost.
/// Therefore the store refuses all writes until the files are restored, and refuses reads of a file
/// that was moved. The store checks the files in every write, before it acknowledges the write.
/// Earlier acknowledged writes are in the moved file. The data in a truncated part of a file are
/// lost. This error is the source of a
/// [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend):
///
/// ```
/// use tower_chat_core::store::StoreError;
/// use tower_chat_sqlite::FileMoved;
///
/// fn is_moved(error: &StoreError) -> bool {
///     matches!(error, StoreError::Backend { source, .. } if source.is::<FileMoved>())
/// }
/// # use tower_chat_sqlite::FileChange;
/// # let moved = FileMoved::new("chat.db", FileChange::Moved);
/// # assert!(is_moved(&StoreError::backend("append", true, moved)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileMoved {
    /// The store's path.
    pub path: PathBuf,
    /// The change of the files.
    pub change: FileChange,
}

/// The change of the files of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileChange {
    /// The file was moved, deleted or replaced.
    Moved,
    /// The file was truncated.
    Truncated,
    /// The write-ahead log (`-wal`), or its index (`-shm`), was moved, deleted or replaced.
    LogMoved,
    /// The write-ahead log was truncated.
    LogTruncated,
    /// Another program wrote to the file while this store read the file without a log. A store
    /// reads without a log if the process has no permission to write the folder.
    Written,
}

impl FileMoved {
    /// Creates the error for a change of the files at a store's path.
    pub fn new(path: impl Into<PathBuf>, change: FileChange) -> Self {
        Self { path: path.into(), change }
    }
}

impl fmt::Display for FileMoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.path.display();
        match self.change {
            FileChange::Written => write!(
                f,
                "`{at}` was read without its log, because its folder is not writable, and another \
                 program has written to it: read it again, or make the folder writable"
            ),
            FileChange::Moved => write!(
                f,
                "`{at}` was moved, deleted or replaced while the store was open: move it back; to \
                 use another file at this path, stop all programs that have it open, check that \
                 `{at}-wal` does not exist, and open the store again"
            ),
            FileChange::Truncated => write!(
                f,
                "`{at}` was truncated while the store was open: stop all programs that have it open, \
                 and restore it from a backup"
            ),
            FileChange::LogMoved => write!(
                f,
                "the log `{at}-wal`, or its index `{at}-shm`, was moved, deleted or replaced while \
                 the store was open: move it back, or close the store, which copies the content of \
                 the log into `{at}`, and open it again"
            ),
            FileChange::LogTruncated => write!(
                f,
                "the log `{at}-wal` was truncated while the store was open, and the last writes may \
                 be lost: stop all programs that have it open, and open it again, or restore it \
                 from a backup"
            ),
        }
    }
}

impl std::error::Error for FileMoved {}

/// A file at a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) identity: Identity,
    /// The size in bytes.
    pub(crate) size: u64,
}

/// Identifies a file independently of its name. Two files that exist at the same time have
/// different identities. A deleted file exists until no process has it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    number: u64,
}

impl Identity {
    /// Returns the identity and the size of the file at a path; `None` if no file is there.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not report the metadata of the file, for example because
    /// the process has no access to the folder.
    pub(crate) fn at(path: &Path) -> Result<Option<Found>, io::Error> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Found { identity: Self::of(&metadata), size: metadata.len() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(unix)]
    fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// On other systems an open file cannot be moved, and all identities are equal.
    #[cfg(not(unix))]
    fn of(_: &std::fs::Metadata) -> Self {
        Self {}
    }
}
