//! For programs on one machine: a `tower-chat` history store in one SQLite file.
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
//! # What is durable, and when
//!
//! The file is in WAL mode. With [`Durability::Full`], the default, a write that was acknowledged
//! survives the loss of power; with [`Durability::Normal`] it survives the end of the process.
//! Writes that wait at the same time share one transaction and one sync of the disk, up to 256 or
//! 1 MiB; a caller that finds the store idle does its own write, without waking another thread, as
//! it reads the head of a conversation.
//! Where the disk is slow, [`reserve`](tower_chat_core::store::HistoryStore::reserve) waits: the
//! queue is bounded in submissions and in bytes.
//!
//! # The write-ahead log
//!
//! At 1,000 pages (4 MB) of log (`-wal`) the writer carries over into the file what is left of it, and
//! the log is begun anew; with [`Durability::Full`] a thread has done most of it by then, while others
//! read and write. The log grows larger where a transaction is, and while somebody reads for long:
//! nothing may be written over that is being read. Afterwards the thread carries over what has come
//! together, and the log is cut to 16 MiB. Where readers leave no gap, the writer waits for them from
//! 2,000 pages on: 50 ms at first, 1 s where the log is 40,000 pages long.
//!
//! # When something is wrong with the disk
//!
//! What was acknowledged stays, as long as nobody takes the file or its log away, nothing is
//! half-stored, and the store can be used again as soon as the cause is gone; it need not be opened
//! again, but where its log is lost. On a full disk what is in the log is
//! carried over at once, so that its room can be used again.
//!
//! | cause | error of a store that is open | error of opening |
//! |---|---|---|
//! | no room | [`StoreError::StorageFull`](tower_chat_core::store::StoreError::StorageFull) | [`OpenError::StorageFull`] |
//! | it may not be written | [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly) | [`OpenError::ReadOnly`] |
//! | the file or its log was moved, deleted, replaced or truncated | [`FileMoved`], as the source, of the next write | |
//! | the file is damaged, or a row holds a number out of its range | [`StoreError::Corrupt`](tower_chat_core::store::StoreError::Corrupt) or [`StoreError::Undecodable`](tower_chat_core::store::StoreError::Undecodable), of that conversation | [`OpenError::Corrupt`] |
//! | a panic while it writes | [`WritePanicked`], as the source, of that one write | |
//! | a quota or a limit on the size of files, of which SQLite says only that it could not write | [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend), retryable | [`OpenError::Io`] |
//! | another process holds it, or writing fails | [`StoreError::Backend`](tower_chat_core::store::StoreError::Backend), retryable | [`OpenError::Locked`], [`OpenError::Io`] |
//!
//! # Backups
//!
//! [`SqliteStore::backup`] copies a store while it is in use, as does `tower-chat backup`. To copy the
//! file by other means, close the store everywhere first: what is in the log is not in the file.
//!
//! # Several processes
//!
//! Any number of processes on one machine may use one file. A process that finds it locked waits
//! for five seconds, then reports an error that is retryable. SQLite does not give the lock in order:
//! beside one that writes all the time another may wait in vain, the more so the slower the disk is.
//! The file may not be on a network file system.
//!
//! A store that was opened before `fork(2)` may not be used in the child, nor dropped: open it there
//! anew.
//!
//! # The record of tool calls
//!
//! Its rows are written with their messages, into a tree of their own, which adds a page or two to
//! the write-ahead log. There is no index by tool, status or time, since each would add as much
//! again: a question reads the rows of the conversation that it names, or else of its whole scope.
//! Times are kept in whole milliseconds.
//!
//! # Open runs
//!
//! What a run stages stands in the tables of the messages and of the record, at its final position; a
//! row for each open run says how much of its conversation readers see. A commit takes this row
//! away and moves nothing. [`rows`](tower_chat_core::store::HistoryStore::rows) shows what readers see,
//! and [`rewrite`](tower_chat_core::store::HistoryStore::rewrite) leaves a conversation alone while a run
//! is open. A process of a release without open runs must not have the file open while it is migrated:
//! it would show what is staged.
//!
//! # Damage
//!
//! Each message has a checksum, of its content and its position. One that was changed in the file, as by a
//! disk that has flipped a bit, is not read as another: it is
//! [`StoreError::Undecodable`](tower_chat_core::store::StoreError::Undecodable), and `tower-chat verify`
//! names it. Messages that releases before version 6 of the file have stored have none. The record of
//! tool calls, the directory and the pages of the file have none either; much of what is damaged there is
//! found by [`SqliteStore::check_integrity`], and not all. Frames of the write-ahead log have checksums of
//! SQLite's: it takes a damaged one for the end of the log, so what was written after it is missing, and
//! nothing tells so. `tower-chat-encrypted` authenticates all content.
//!
//! # Who may read it
//!
//! On Unix a file that a store makes may be read and written by its owner alone (mode 0600), whatever the
//! umask, and so may its log (`-wal`), the log's index (`-shm`) and [backups](Backup). A file that is there
//! keeps its permissions, and its log has the same.
//!
//! # Deleting
//!
//! A conversation of more than 1 MiB is deleted in steps: first no reader finds it any more, then its rows
//! go, at most about 1 MiB of them in one transaction, and the log is begun anew after each. So it takes
//! little room on a disk that is full, and less where it has to: 16 KiB at a time, or one message, if
//! that is larger. Where even that fails, the error says so, and the conversation is gone for readers;
//! what is left of it goes with the next deletion, or when the file is opened for writing the next time,
//! which is also so after a crash. A pruning is one transaction, however much it takes away.
//!
//! What is deleted or pruned is overwritten where it stands in the file. The write-ahead log (`-wal`)
//! still holds it until it is reused; [`SqliteStore::checkpoint`] empties it at once.
//!
//! Copies may stay. When a page becomes too small, SQLite moves rows to others, and does not always
//! overwrite where they were: a piece of a text, of less than a page (4 KB), or an id may then stand in
//! free room of the file until a row comes to stand there, and in [backups](Backup) too.
//! [`SqliteStore::vacuum`], as `tower-chat vacuum`, writes the file anew, without any of that: where
//! nothing may be left, delete, and vacuum now and then. That costs as much as the whole file is
//! large. To lose the key is the other way, and it reaches copies of the file: `tower-chat-encrypted`
//! with its `ErasableKeys`.

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
