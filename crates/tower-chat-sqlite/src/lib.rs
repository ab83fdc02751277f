//! A tower-chat history store in one SQLite file.
//!
//! [`SqliteStore`] is a [`HistoryStore`](tower_chat_core::store::HistoryStore): open it once,
//! clone it freely.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("chat.db");
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use tower_chat_core::{ConversationKey, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, Write};
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
//! Writes that wait at the same time share one transaction and one sync of the disk; a caller
//! that finds the store idle does its own write, without waking another thread.
//!
//! # Several processes
//!
//! Any number of processes on one machine may use one file. A process that finds it locked waits
//! for five seconds, then reports an error that is retryable. The file may not be on a network
//! file system.
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
//! What a run stages stands in the tables of the messages and of the record, at its final place; a
//! row for each open run says how much of its conversation readers see. A commit takes this row
//! away and moves nothing. [`SqliteStore::rows`] shows what readers see, and
//! [`SqliteStore::rewrite`] leaves a conversation alone while a run is open. A process of a release
//! without open runs must not have the file open while it is migrated: it would show what is staged.
//!
//! # Deleting
//!
//! What is deleted is overwritten in the file. The write-ahead log (`-wal`) still holds it until
//! it is reused; [`SqliteStore::checkpoint`] empties it at once.

mod append;
mod conversation;
mod failure;
mod file;
mod fork;
mod invocations;
mod maintenance;
mod open_error;
mod open_run;
mod options;
mod pending_approvals;
mod place;
mod prune;
mod queue;
mod read;
mod readers;
mod schema;
mod store;
mod submission;
mod tool_row;
mod tool_totals;
mod writer;

pub use self::{
    maintenance::{ConversationRows, Rewrite, StrayRows},
    open_error::OpenError,
    options::{Durability, SqliteOptions},
    store::{SqliteStore, Statistics},
};

#[cfg(test)]
mod tests;
