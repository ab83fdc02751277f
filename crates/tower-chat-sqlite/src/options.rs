//! How a store is opened.

use std::path::Path;

use tokio::sync::Semaphore;

use crate::{OpenError, SqliteStore};

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The loss of power, and the end of the system: every commit waits until the disk says that it
    /// has the write (`synchronous=FULL`). What was acknowledged is never lost, unless the disk
    /// forgets what it said it had; on macOS the drive's own cache is not waited for.
    #[default]
    Full,
    /// The end of the process, however it ends. The loss of power, and the end of the system, may
    /// undo the last writes, newest first; the file stays sound (`synchronous=NORMAL`).
    ///
    /// At risk is what was written since the write-ahead log was last synced, which is when it is
    /// carried over into the file: after 1,000 pages (4 MB) and one transaction, and at [`close`](tower_chat_core::store::HistoryStore::close)
    /// and [`checkpoint`](SqliteStore::checkpoint). While somebody reads all the time, or the disk is
    /// full, it may be more. No time bounds it: the last writes of a store at rest stay at risk
    /// until the system writes them of its own accord.
    Normal,
}

/// Settings with which to open a [`SqliteStore`].
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
    /// The defaults: full durability, 1024 slots and 64 MiB in the queue, 4 readers; a missing file
    /// is made.
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

    /// What an acknowledged write survives.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Says that one process at a time opens the file, as a desktop application or a single server
    /// does. Journaled runs then take no lease, and a run that the process before has left open is
    /// taken over without waiting for one to end. Off by default.
    ///
    /// It changes nothing in the file, and keeps no other process from opening it: see
    /// [`StoreHandle::exclusive`](tower_chat_core::store::StoreHandle::exclusive) for what follows
    /// if one does.
    #[must_use]
    pub fn with_exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// How many submissions may be reserved or under way at the same time, at least 1; more wait
    /// in [`reserve`](tower_chat_core::store::HistoryStore::reserve).
    #[must_use]
    pub fn with_max_queued(mut self, submissions: usize) -> Self {
        self.max_queued = submissions;
        self
    }

    /// How many bytes of messages may be submitted and not yet be durable, at least 1, before
    /// [`reserve`](tower_chat_core::store::HistoryStore::reserve) waits. A caller with a slot is
    /// taken all the same, since a submission cannot wait: the queue holds at most this much, and
    /// what those submit who have reserved.
    #[must_use]
    pub fn with_max_queued_bytes(mut self, bytes: usize) -> Self {
        self.max_queued_bytes = bytes;
        self
    }

    /// How many conversations can be read at the same time, at least 1. Each takes a connection,
    /// opened when it is first needed, and a thread of tokio's blocking pool while it reads.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Whether a missing file is made; otherwise it is [`OpenError::Missing`].
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether the store is only read. Every write then fails with
    /// [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly), and nothing is made
    /// but an empty write-ahead log and SQLite's index of it, which the last connection removes if it
    /// may write the file. A log that holds something stays as it is. In a folder that cannot be
    /// written, the file is read by itself if its log is empty or missing, and refused with
    /// [`OpenError::UnreadLog`] if not; a read during which another program begins to write to it fails.
    #[must_use]
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a caller on a multi-thread runtime does short work itself (the default): its own
    /// write where nobody else is writing, and the read of a head. That saves waking another
    /// thread. It uses tokio's `block_in_place`, which panics inside a `LocalSet`; the panic is
    /// caught and the other thread takes over, but under `panic = "abort"` a program that uses the
    /// store from `spawn_local` should turn this off.
    #[must_use]
    pub fn with_work_on_caller(mut self, work_on_caller: bool) -> Self {
        self.work_on_caller = work_on_caller;
        self
    }

    /// Opens the store at a path. Must be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; a file that is not a store is left as it is.
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
