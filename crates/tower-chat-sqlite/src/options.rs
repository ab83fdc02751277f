//! The options of opening a store.

use std::path::Path;

use tokio::sync::Semaphore;

use crate::{OpenError, SqliteStore};

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// An acknowledged write survives a power loss and a crash of the system. Every commit waits
    /// until the disk reports that the write is stored (`synchronous=FULL`). The guarantee depends
    /// on the disk: on macOS, SQLite does not wait for the drive's own cache.
    #[default]
    Full,
    /// An acknowledged write survives the end of the process, however it ends. A power loss or a
    /// crash of the system may undo the last writes, newest first; the file stays consistent
    /// (`synchronous=NORMAL`).
    ///
    /// The writes since the last sync of the write-ahead log are at risk: up to 1,000 pages (4 MB)
    /// and one transaction, after which a checkpoint syncs the log. If readers overlap without a
    /// gap, or the disk is full, more writes are at risk. The log is also synced at
    /// [`close`](tower_chat_core::store::HistoryStore::close) and
    /// [`checkpoint`](SqliteStore::checkpoint). There is no time limit: the last writes of an idle
    /// store stay at risk until the operating system writes them to the disk.
    Normal,
}

/// The options with which a [`SqliteStore`] is opened.
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
    /// Creates the default options: full durability, 1024 slots and 64 MiB in the queue, 4 readers;
    /// a missing file is created.
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

    /// Declares that one process at a time opens the file, such as a desktop application or a single
    /// server. Journaled runs then take no lease. A run that the previous process did not complete is
    /// resumed without waiting for a lease to expire. The default is false.
    ///
    /// The option changes nothing in the file, and does not prevent other processes from opening
    /// it: see [`StoreHandle::exclusive`](tower_chat_core::store::StoreHandle::exclusive) for the
    /// consequences.
    #[must_use]
    pub fn with_exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Sets the maximum number of submissions that are reserved or unfinished, at least 1. Further
    /// callers wait in [`reserve`](tower_chat_core::store::HistoryStore::reserve).
    #[must_use]
    pub fn with_max_queued(mut self, submissions: usize) -> Self {
        self.max_queued = submissions;
        self
    }

    /// Sets the maximum number of bytes in unfinished submissions, at least 1. While they are at or
    /// above this number, [`reserve`](tower_chat_core::store::HistoryStore::reserve) waits. A
    /// caller that already has a slot may exceed the limit, because a submission cannot wait.
    #[must_use]
    pub fn with_max_queued_bytes(mut self, bytes: usize) -> Self {
        self.max_queued_bytes = bytes;
        self
    }

    /// Sets the maximum number of concurrent reads, at least 1. Each reader has a connection, which
    /// is opened when it is first needed, and uses a thread of tokio's blocking pool while it
    /// reads.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Sets whether a missing file is created. If not, opening it fails with
    /// [`OpenError::Missing`].
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the store is read-only. Every write then fails with
    /// [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly).
    ///
    /// Opening the store changes no data, but creates an empty write-ahead log and SQLite's index of it
    /// if they are missing; the last connection removes both if it has permission to write the file. A
    /// log with content is unchanged. If there is no permission to write the folder, the file is read
    /// without a log if the log is empty or missing, and otherwise refused with [`OpenError::UnreadLog`].
    /// A read fails if another program writes to the file meanwhile.
    #[must_use]
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets whether a caller on a multi-thread runtime executes short work on its own thread (the
    /// default): its own write if the store is idle, and the read of a head. The caller then wakes no
    /// other thread. The store uses tokio's `block_in_place`, which panics inside a `LocalSet`. The panic
    /// is caught, and the writer thread or a thread of tokio's blocking pool executes the work. Under
    /// `panic = "abort"`, a program that uses the store from `spawn_local` should disable this option.
    #[must_use]
    pub fn with_work_on_caller(mut self, work_on_caller: bool) -> Self {
        self.work_on_caller = work_on_caller;
        self
    }

    /// Opens the store at a path. Must be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; a file that is not a store is unchanged.
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
