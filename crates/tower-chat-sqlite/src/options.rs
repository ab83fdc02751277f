//! The options of opening a store.

use std::path::Path;

use tokio::sync::Semaphore;

use crate::{OpenError, SqliteStore};

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// An acknowledged write survives a power loss and a crash of the system. Every commit waits
    /// until the disk reports that the write is stored (`synchronous=FULL`). A disk that reports a
    /// write before it has stored the write breaks this guarantee. On macOS, SQLite does not wait
    /// until the drive has written its own cache.
    #[default]
    Full,
    /// An acknowledged write survives a crash or a kill of the process. A power loss or a crash of
    /// the system may remove the last acknowledged writes. If a write remains, all earlier writes
    /// remain too. The file remains consistent (`synchronous=NORMAL`).
    ///
    /// A power loss can remove the writes since the last sync of the write-ahead log. Three
    /// operations sync the log: a checkpoint of the store,
    /// [`close`](tower_chat_core::store::HistoryStore::close) and
    /// [`checkpoint`](SqliteStore::checkpoint). The store runs a checkpoint when the log reaches
    /// 1,000 pages (4 MB), or later if the disk is full or if a new read always begins before the
    /// previous one ends. The store does not sync the log periodically. The last writes of an idle
    /// store are therefore at risk until the operating system has written them to the disk.
    Normal,
}

/// The options for opening a [`SqliteStore`].
///
/// ```no_run
/// # async fn open() -> Result<(), tower_chat_sqlite::OpenError> {
/// use tower_chat_sqlite::{Durability, SqliteStore};
/// let store = SqliteStore::options()
///     .with_durability(Durability::Normal)
///     .with_max_queued(64)
///     .open("chat.db")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub(crate) durability: Durability,
    pub(crate) max_queued: usize,
    pub(crate) max_queued_bytes: usize,
    pub(crate) readers: usize,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) work_on_caller: bool,
    pub(crate) exclusive: bool,
}

impl SqliteOptions {
    /// Creates the default options: full durability, a queue of at most 1024 entries and 64 MiB,
    /// and 4 concurrent reads. A missing file is created.
    pub fn new() -> Self {
        Self {
            durability: Durability::Full,
            max_queued: 1024,
            max_queued_bytes: 64 << 20,
            readers: 4,
            create: true,
            read_only: false,
            work_on_caller: true,
            exclusive: false,
        }
    }

    /// Sets the durability of acknowledged writes.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Declares that at most one process at a time opens the file, for example a desktop
    /// application or a single server. By default, a journaled run (a run whose messages are stored
    /// immediately, one by one) has a lease: a time until which no other process may take over the
    /// run. With this option, runs have no lease, and the next process resumes an unfinished run
    /// without waiting. The default is false.
    ///
    /// The option changes nothing in the file, and does not prevent other processes from opening
    /// the file: see [`StoreHandle::exclusive`](tower_chat_core::store::StoreHandle::exclusive) for
    /// the consequences.
    #[must_use]
    pub fn with_exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Sets the maximum number of submissions that are reserved or unfinished, at least 1. A
    /// submission is the writes of one call of `append`, or another change, for example a deletion.
    /// When the maximum is reached, further callers wait in
    /// [`reserve`](tower_chat_core::store::HistoryStore::reserve).
    #[must_use]
    pub fn with_max_queued(mut self, submissions: usize) -> Self {
        self.max_queued = submissions;
        self
    }

    /// Sets the maximum number of bytes in unfinished submissions, at least 1. When unfinished
    /// submissions have at least this number of bytes,
    /// [`reserve`](tower_chat_core::store::HistoryStore::reserve) waits. An append does not wait,
    /// so that a caller with a reserved entry may exceed the maximum.
    #[must_use]
    pub fn with_max_queued_bytes(mut self, bytes: usize) -> Self {
        self.max_queued_bytes = bytes;
        self
    }

    /// Sets the maximum number of concurrent reads, at least 1. Each concurrent read uses its own
    /// connection, and usually a thread of tokio's blocking pool. The store opens a connection when
    /// it first needs the connection.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Sets whether a missing file is created. If `create` is false, opening a missing file fails
    /// with [`OpenError::Missing`].
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the store is read-only. Every write then fails with
    /// [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly).
    ///
    /// Opening the store changes no data, but creates an empty write-ahead log, and SQLite's index
    /// of the log, if these files are missing. The connection that is closed last removes both
    /// files, if it has permission to write the database file. A log with content is not changed.
    ///
    /// If the process has no permission to write the folder, and the log has content, opening the
    /// store fails with [`OpenError::UnreadLog`]. If the log is empty or missing, the store reads
    /// the file without a log. A read then fails if another program has written to the file.
    #[must_use]
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets whether a caller on a multi-thread runtime executes short work on its own thread,
    /// without waking another thread. Short work is a read of a few rows, and the caller's own
    /// write if the store is idle. The default is true.
    ///
    /// The store uses tokio's `block_in_place`, which panics inside a `LocalSet`. The store catches
    /// the panic, and the writer thread or a thread of tokio's blocking pool executes the work
    /// instead. Under `panic = "abort"` the panic cannot be caught. A program that uses the store
    /// from `spawn_local` should then disable this option.
    #[must_use]
    pub fn with_work_on_caller(mut self, work_on_caller: bool) -> Self {
        self.work_on_caller = work_on_caller;
        self
    }

    /// Opens the store at a path. Must be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened. A file that is not a store is not
    /// changed.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        let allowed = 1..=Semaphore::MAX_PERMITS;
        for (option, value) in [("max_queued", self.max_queued), ("readers", self.readers)] {
            if !allowed.contains(&value) {
                return Err(OpenError::InvalidOption { option, value });
            }
        }
        if self.max_queued_bytes == 0 {
            return Err(OpenError::InvalidOption { option: "max_queued_bytes", value: 0 });
        }
        SqliteStore::open_with(path.as_ref(), self).await
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}
