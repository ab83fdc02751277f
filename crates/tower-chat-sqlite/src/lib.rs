//! A `tower-chat` history store in one SQLite file, for programs on one machine.
//!
//! [`SqliteStore`] implements [`HistoryStore`](tower_chat_core::store::HistoryStore). A program
//! opens the store once; clones of the store are cheap.
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
//! a power loss. With [`Durability::Normal`] an acknowledged write survives a crash of the process,
//! but perhaps not a power loss. Writes that wait at the same time share one transaction and one
//! sync of the disk. One transaction contains the changes of at most 256 calls of the store, and
//! at most 1 MiB unless the changes of a single call are larger.
//!
//! If the store is idle, the calling thread executes its own write, without waking another thread.
//! The calling thread also executes reads of a few rows. If the disk is slow,
//! [`reserve`](tower_chat_core::store::HistoryStore::reserve) waits, because the queue has a
//! maximum number of entries and of bytes.
//!
//! # The write-ahead log
//!
//! When the log (`-wal`) has 1,000 pages (4 MB), the writer copies those pages into the file that
//! are not in the file yet. The next transaction then writes to the beginning of the log again.
//! With [`Durability::Full`], a checkpoint thread has already copied most pages while other threads
//! read and wrote.
//!
//! A large transaction makes the log larger than 1,000 pages. A long read also does, because SQLite
//! must not overwrite pages that the reader may need. Afterwards the checkpoint thread copies the
//! additional pages, and SQLite truncates the log to 16 MiB. If a new read always begins before the
//! previous one ends, and the log has 2,000 pages or more, the writer waits for the readers. The
//! wait is 50 ms for a log of 2,000 pages, and 1 s for 40,000 pages or more.
//!
//! # Failures of the disk
//!
//! A failure loses no acknowledged write, unless the file or its log was removed. Each write is
//! stored entirely or not at all. The store works again as soon as the cause of the failure has
//! been removed. The program needs to open the store again only if its log was lost. If the disk is
//! full, the store immediately copies the log into the file, so that the next write needs no space
//! for a larger log.
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
//! waits up to five seconds for the lock, and then reports a retryable error. SQLite does not grant
//! the lock in the order of the requests. If one process writes continuously, another process may
//! not get the lock within five seconds, especially on a slow disk. The file must not be on a
//! network file system.
//!
//! A store that was opened before `fork(2)` must be neither used nor dropped in the child process.
//! The child process must open the file again.
//!
//! # The record of tool calls
//!
//! The record of tool calls has one row for each call, with its status, times and result. The rows
//! are in a separate table. An append writes the rows in the same transaction as its messages, and
//! the table adds one or two pages per append to the write-ahead log. The table has no index by
//! tool, status or time, because each index would add another one or two pages per append. A query
//! that names a conversation reads all rows of that conversation. Any other query reads all rows of
//! its scope. Times are stored in whole milliseconds.
//!
//! # Open runs
//!
//! A run in the journaled mode is open until it is committed or discarded. Its messages and rows
//! are staged: they are stored, but readers do not see them. Staged messages and rows are in the
//! same tables as committed ones, at their final positions. A row for each open run stores the
//! number of visible messages in its conversation. A commit deletes this row, and moves no
//! messages. [`rows`](tower_chat_core::store::Maintenance::rows) returns only the visible rows, and
//! [`rewrite`](tower_chat_core::store::Maintenance::rewrite) refuses a conversation with an open
//! run. Before a new release migrates a file, close the file in all processes of releases that do
//! not support open runs. A process of such a release would return staged messages as visible ones.
//!
//! # Damage
//!
//! Each message has a checksum of its content and its position. A message that was changed in the
//! file, for example by a bit flip on the disk, is reported as
//! [`StoreError::Undecodable`](tower_chat_core::store::StoreError::Undecodable), and `tower-chat
//! verify` lists the message. Messages that were stored before version 6 of the file have no
//! checksum. The record of tool calls, the directory (the descriptions, times and counts of
//! conversations) and the pages of the file have no checksums either.
//! [`SqliteStore::check_integrity`] detects some damage of these data, but not all.
//!
//! SQLite adds a checksum to each frame of the write-ahead log. If the checksum of a frame does not
//! match, SQLite treats the frame as the end of the log. Writes after this frame are then lost
//! without an error. `tower-chat-encrypted` authenticates all content.
//!
//! # Permissions
//!
//! On Unix a new file is readable and writable for its owner only (mode 0600), regardless of the
//! umask. The same applies to the log of the file (`-wal`), the log's index (`-shm`) and
//! [backups](Backup). The store does not change the permissions of an existing file, and creates
//! the log with the same permissions.
//!
//! # Deleting
//!
//! A conversation of more than 1 MiB is deleted in steps. The first step makes the conversation
//! invisible to readers. Each further step deletes about 1 MiB of rows in one transaction. A
//! checkpoint after each step lets the next step overwrite the log, so that a deletion needs little
//! additional space on a full disk. If a step fails because the disk is full, the store repeats the
//! step with half its size, down to 16 KiB or one message. If the smallest step fails too, the
//! deletion returns an error, although the conversation is already invisible. The store deletes the
//! remaining rows with its next deletion, or when the file is next opened for writing. The same
//! happens after a crash during a deletion. A prune, which deletes the oldest runs of a
//! conversation, is always one transaction, regardless of its size.
//!
//! SQLite overwrites deleted and pruned data in the file. The write-ahead log (`-wal`) contains the
//! deleted data until later writes overwrite the log. [`SqliteStore::checkpoint`] truncates the log
//! immediately.
//!
//! Some copies of deleted data may remain in the file. When the rows of a page no longer fit in the
//! page, SQLite moves rows to other pages and does not always overwrite the old location. An id, or
//! a fragment of a text that is smaller than a page (4 KB), may then remain in unused space of the
//! file until SQLite reuses that space. [Backups](Backup) may contain this fragment too.
//! [`SqliteStore::vacuum`], or `tower-chat vacuum`, rewrites the file without such fragments. The
//! cost of a vacuum is proportional to the size of the file. If your deletions must not leave any
//! copy in the file, vacuum the file after them. Alternatively, deleting an encryption key makes
//! the data unreadable in all copies of the file: see `ErasableKeys` of `tower-chat-encrypted`.

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
mod history_summary;
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
