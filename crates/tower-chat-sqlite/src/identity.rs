//! Which file a store was opened on, and whether it is still there.

use std::path::{Path, PathBuf};

/// Somebody moved, deleted or replaced the file of a store that is open.
///
/// What would be written, SQLite would write to the file that is no longer there, and nobody would
/// find it. So the store neither writes nor reads until the file is back in its place; writes notice
/// it within 10 ms, what was acknowledged before is where the file went. It is the
/// source of a [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend):
///
/// ```
/// use tower_chat_core::store::StoreError;
/// use tower_chat_sqlite::FileMoved;
///
/// fn is_moved(error: &StoreError) -> bool {
///     matches!(error, StoreError::Backend { source, .. } if source.is::<FileMoved>())
/// }
/// # let path = "chat.db".into();
/// # assert!(is_moved(&StoreError::backend("append", true, FileMoved { path })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{at}` was moved, deleted or replaced while the store was open: put it back; to use another \
     file in its place, end all programs that have it open, see that there is no `{at}-wal`, and \
     open it again",
    at = path.display()
)]
pub struct FileMoved {
    /// The store's path.
    pub path: PathBuf,
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
    /// If nobody can tell: a file that is open can be used without its folder.
    #[cfg(unix)]
    pub(crate) fn at(path: &Path) -> Result<Option<Self>, std::io::Error> {
        use std::{io::ErrorKind, os::unix::fs::MetadataExt};

        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self { device: metadata.dev(), number: metadata.ino() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Elsewhere a file that is open cannot be moved.
    #[cfg(not(unix))]
    pub(crate) fn at(_: &Path) -> Result<Option<Self>, std::io::Error> {
        Ok(Some(Self {}))
    }
}
