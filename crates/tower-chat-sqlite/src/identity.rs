//! Which file a store was opened on, and whether it is still there.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// The database file of an open store, or its log, was moved, deleted, replaced or truncated.
///
/// SQLite would go on writing to the file that is no longer there, or behind a gap in its log, and what
/// it wrote would be lost. So the store does not write until the file is back as it was, and does not
/// read a file that was moved; each write checks this before it is acknowledged. What was acknowledged before
/// is where the file went, and what was in a part that was cut off is lost. It is the source of a
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
    /// What was done.
    pub change: FileChange,
}

/// What happened to the files of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileChange {
    /// The file was moved, deleted or replaced.
    Moved,
    /// The file was made shorter.
    Truncated,
    /// The write-ahead log (`-wal`), or its index (`-shm`), was moved, deleted or replaced.
    LogMoved,
    /// The write-ahead log was made shorter.
    LogTruncated,
    /// Another program wrote to a file that was read without its log, since its folder cannot be
    /// written.
    Written,
}

impl FileMoved {
    /// A change of the files at a store's path.
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
                "another program has written to `{at}` while it was read without its log, since its \
                 folder cannot be written: read it again, or make the folder writable"
            ),
            FileChange::Moved => write!(
                f,
                "`{at}` was moved, deleted or replaced while the store was open: put it back; to \
                 use another file at that path, end all programs that have it open, see that there \
                 is no `{at}-wal`, and open it again"
            ),
            FileChange::Truncated => write!(
                f,
                "`{at}` was made shorter while the store was open: end all programs that have it \
                 open, and restore it from a backup"
            ),
            FileChange::LogMoved => write!(
                f,
                "the log `{at}-wal`, or its index `{at}-shm`, was moved, deleted or replaced while \
                 the store was open: put it back, or close the store, which carries over what the \
                 log held, and open it again"
            ),
            FileChange::LogTruncated => write!(
                f,
                "the log `{at}-wal` was made shorter while the store was open, and the last writes \
                 may be lost: end all programs that have it open, and open it again, or restore it \
                 from a backup"
            ),
        }
    }
}

impl std::error::Error for FileMoved {}

/// A file as it is found at a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) identity: Identity,
    /// In bytes.
    pub(crate) size: u64,
}

/// What tells a file from another that has its name later. A file that is open keeps its identity
/// to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    number: u64,
}

impl Identity {
    /// The file at a path; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be told: an open file can be used without its folder.
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

    /// Elsewhere a file that is open cannot be moved.
    #[cfg(not(unix))]
    fn of(_: &std::fs::Metadata) -> Self {
        Self {}
    }
}
