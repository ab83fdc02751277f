//! A `tower-chat` history store in one SQLite file, for programs on one machine.
//!
//! [`SqliteStore`] is a [`HistoryStore`](tower_chat_core::store::HistoryStore): open it once,
//! clone it freely.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("chat.db");
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use tower_chat_core::{ConversationKey, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, author::Write};
//! use tower_chat_sqlite::SqliteStore;
//!
//! let store = SqliteStore::open(path).await?;
//! let key = ConversationKey::new("alice", "support");
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
//!
//! let slot = store.reserve().await?;
//! store.append(slot, vec![write]).await?;
//! assert_eq!(store.load(&key).await?.messages.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Durability
//!
//! The file is in WAL mode. With [`Durability::Full`], the default, an acknowledged write survives
//! a power loss. With [`Durability::Normal`] it survives the end of the process. Writes that wait
//! at the same time share one transaction and one sync of the disk, up to 256 submissions or 1 MiB.
//! If the store is idle, the calling thread executes its own write, without waking another thread;
//! the same applies to reads of a few rows, such as a head. If the disk is slow,
//! [`reserve`](tower_chat_core::store::HistoryStore::reserve) waits, because the queue is bounded
//! in submissions and in bytes.
//!
//! # The write-ahead log
//!
//! When the log (`-wal`) has 1,000 pages (4 MB), the writer copies the remaining pages into the
//! file, and the log is reused from its beginning. With [`Durability::Full`] a checkpoint thread
//! has already copied most pages, while other threads read and write. The log grows larger during a
//! large transaction and during a long read, because pages that a reader may need cannot be
//! overwritten. Afterwards the checkpoint thread copies the accumulated pages, and the log is
//! truncated to 16 MiB. If readers overlap without a gap, the writer waits for them from 2,000
//! pages on: 50 ms at first, 1 s if the log has 40,000 pages.
//!
//! # Failures of the disk
//!
//! Acknowledged writes stay stored, as long as the file and its log are not removed, and no write is
//! stored in part. The store can be used again as soon as the cause of the failure is removed. Open the
//! store again only if its log was lost. If the disk is full, the store copies the log into the file at
//! once, so that the log can be reused.
//!
//! | cause | error of a store that is open | error of opening |
//! |---|---|---|
//! | the disk is full | [`StoreError::StorageFull`](tower_chat_core::store::StoreError::StorageFull) | [`OpenError::StorageFull`] |
//! | there is no permission to write | [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly) | [`OpenError::ReadOnly`] |
//! | the file or its log was moved, deleted, replaced or truncated | [`FileMoved`], as the source of the next write's error | |
//! | the file is damaged, or a row contains a number out of its range | [`StoreError::Corrupt`](tower_chat_core::store::StoreError::Corrupt) or [`StoreError::Undecodable`](tower_chat_core::store::StoreError::Undecodable), for that conversation | [`OpenError::Corrupt`] |
//! | a panic during a write | [`WritePanicked`], as the source of that write's error | |
//! | a quota or a limit on file sizes, for which SQLite only reports a failed write | [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend), retryable | [`OpenError::Io`] |
//! | another process has the lock, or writing fails | [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend), retryable | [`OpenError::Locked`], [`OpenError::Io`] |
//!
//! # Backups
//!
//! [`SqliteStore::backup`] and `tower-chat backup` copy a store while it is in use. To copy the
//! file by other means, close the store in all processes first, because the content of the log is
//! not in the file.
//!
//! # Several processes
//!
//! Any number of processes on one machine may use one file. A process that finds the file locked
//! waits for five seconds, then reports a retryable error. SQLite does not grant the lock in order.
//! If one process writes continuously, another may not get the lock in time, especially on a slow
//! disk. The file must not be on a network file system.
//!
//! A store that was opened before `fork(2)` must be neither used nor dropped in the child process.
//! Open the file again there.
//!
//! # The record of tool calls
//!
//! The rows of the record are written with their messages, into a table of their own, which adds
//! one or two pages per append to the write-ahead log. There are no indexes by tool, status or
//! time, because each would add as much again. A query reads the rows of the conversation that it
//! names, or else of its whole scope. Times are stored in whole milliseconds.
//!
//! # Open runs
//!
//! Staged messages and rows are in the same tables as committed ones, at their final positions. A
//! row for each open run stores the number of visible messages in its conversation. A commit
//! deletes this row and moves nothing. [`rows`](tower_chat_core::store::Maintenance::rows) returns
//! the visible rows, and [`rewrite`](tower_chat_core::store::Maintenance::rewrite) refuses a
//! conversation with an open run. While a file is migrated, no process of a release without open
//! runs may have it open, because that release would return staged messages as visible ones.
//!
//! # Damage
//!
//! Each message has a checksum of its content and its position. A message that was changed in the
//! file, for example by a bit flip on the disk, is reported as
//! [`StoreError::Undecodable`](tower_chat_core::store::StoreError::Undecodable), and
//! `tower-chat verify` lists it. Messages that were stored before version 6 of the file have no
//! checksum. Neither have the record of tool calls, the directory and the pages of the file:
//! [`SqliteStore::check_integrity`] detects some damage there, but not all. Frames of the
//! write-ahead log have checksums of SQLite. SQLite treats a damaged frame as the end of the log,
//! so that later writes are lost without an error. `tower-chat-encrypted` authenticates all
//! content.
//!
//! # Permissions
//!
//! On Unix a new file is readable and writable for its owner only (mode 0600), regardless of the umask.
//! The same applies to its log (`-wal`), the log's index (`-shm`) and [backups](Backup). An existing file
//! keeps its permissions, and its log gets the same ones.
//!
//! # Deleting
//!
//! A conversation of more than 1 MiB is deleted in steps. The first step makes it invisible to
//! readers. Each further step deletes about 1 MiB of rows in one transaction, and the log is reused
//! after each step. A deletion therefore needs little space on a full disk. If even that space is
//! missing, the steps become smaller, down to 16 KiB or one message. If a step still fails, the
//! deletion returns an error, and the conversation is invisible. The remaining rows are deleted by
//! the next deletion, or when the file is next opened for writing, as after a crash. A prune is one
//! transaction of any size.
//!
//! Deleted and pruned data are overwritten in the file. The write-ahead log (`-wal`) contains them
//! until it is reused. [`SqliteStore::checkpoint`] truncates it at once.
//!
//! Some copies may remain in the file. When a page becomes too small, SQLite moves rows to other
//! pages and does not always overwrite the old location. A fragment of a text, smaller than a page
//! (4 KB), or an id may then be in unused space of the file until SQLite reuses that space, and
//! also in [backups](Backup). [`SqliteStore::vacuum`], or `tower-chat vacuum`, rewrites the file
//! without such fragments, at a cost proportional to the size of the file. If no copy may remain,
//! vacuum the file after deletions. Alternatively, deleting an encryption key makes the data
//! unreadable in all copies of the file: see `ErasableKeys` of `tower-chat-encrypted`.

mod append;
mod backup;
mod backup_error;
mod byte_budget;
mod caller;
mod checkpoints;
mod checksum;
mod conversation;
mod directory;
mod failure;
mod file;
mod file_settings;
mod fork;
mod group;
mod head_cache;
mod identity;
mod invocations;
mod maintenance;
mod open_error;
mod open_run;
mod options;
mod pending_approvals;
mod prune;
mod queue;
mod read;
mod readers;
mod removal;
mod row_key;
mod schema;
mod seal_mark;
mod store;
mod submission;
mod sync;
mod telemetry;
mod tool_row;
mod tool_totals;
mod watched;
mod write_panicked;
mod writer;

pub use self::{
    backup::Backup,
    backup_error::BackupError,
    file_settings::FileSettings,
    identity::{FileChange, FileMoved},
    maintenance::StrayRows,
    open_error::OpenError,
    options::{Durability, SqliteOptions},
    store::{SqliteStore, Statistics},
    write_panicked::WritePanicked,
};

#[cfg(test)]
mod tests;
