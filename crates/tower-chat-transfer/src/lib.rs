//! Moves whole conversations between stores and files, and deletes whole scopes.
//!
//! For those who change the store of an application, who hand out what they have of a user, or who
//! delete it. Every transfer works in bounded memory, tells its [progress](Event), can be stopped
//! at any await and gone on with, and ends with a [`Receipt`].
//!
//! ```
//! # futures_util::FutureExt::now_or_never(async {
//! use std::io::Cursor;
//! use tower_chat::{
//!     ConversationKey, MemoryStore,
//!     store::HistoryStore,
//!     transfer::{ExportFile, Selection, delete_scope, export, import},
//! };
//! # use tower_chat::{Message, MessageId, RunId, store::{Revision, author::Write}};
//! # let store = MemoryStore::new();
//! # let key = ConversationKey::new("alice", "support");
//! # let id = MessageId { run: RunId::new(), index: 0 };
//! # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
//! # store.append(store.reserve().await?, vec![write]).await?;
//! // Everything there is of alice, in a file; any `AsyncWrite` will do.
//! let alice = Selection::scope("alice");
//! let mut file = Vec::new();
//! export(&store, &alice, ExportFile::new(&mut file), &mut |_event| Ok(())).await?;
//!
//! // It is deleted, and taken back.
//! delete_scope(&store, "alice", &mut |_event| Ok(())).await?;
//! assert!(store.load(&key).await?.messages.is_empty());
//! let receipt = import(&store, Cursor::new(file), &alice, &mut |_event| Ok(())).await?;
//! assert_eq!(store.load(&key).await?.messages.len(), 1);
//! println!("{}", serde_json::to_string(&receipt)?);
//! # Ok::<(), tower_chat::BoxError>(())
//! # }).unwrap().unwrap();
//! ```
//!
//! # What is preserved
//!
//! Of a conversation that is imported or copied: its messages with their ids, the record of tool calls,
//! its description, times, service id and number of runs, and of every run its times, mode and usage,
//! those that were pruned or discarded as well. A run that is open is open at the target too, with all
//! that it has staged, and its lease has ended: it can be resumed in both stores then, and should be in
//! one, since tools would run in both.
//!
//! Not preserved, and named in the [receipt](Step::differences) of each conversation that it concerns:
//!
//! - the numbers of messages before which others were pruned: a store numbers what it takes from 1;
//! - that a conversation was made by [`fork`] has no rows of the runs it was copied with in the
//!   directory: at the target it has one of each, without usage, from the time of the copy;
//! - the mode of the last run, where no run tells it.
//!
//! Never preserved are the version of the description, and the incarnation of the conversation. A
//! conversation of which readers see nothing and in which no run is open, since all its runs were
//! discarded, is not taken along; [`delete_scope`] deletes it.
//!
//! # The file
//!
//! JSON Lines. The first is `{"format":"tower-chat","version":1}`; the last, `complete`, has the number of
//! conversations and the SHA-256 of all lines before it. A conversation is a line `conversation`, its
//! `run`s, its `message`s with their numbers and ids in the [stored form](tower_chat_core::format), each
//! followed by the rows of the record of tool calls (`tool`) that are complete with it, then an
//! `open_run` with what it has staged, marked `"staged":true`, and a line `end` with the counts and the
//! SHA-256 of its lines. A conversation that was changed while it was read ends with `abandoned`
//! instead, and counts for nothing; it follows again. Times are milliseconds since 1970.
//!
//! [`fork`]: tower_chat_core::store::HistoryStore::fork

mod appender;
mod comparison;
mod contents;
mod copy;
mod delete;
mod digest;
mod error;
mod export;
mod import;
mod line;
mod progress;
mod reader;
mod receipt;
mod receipt_log;
mod record;
mod runs;
mod selection;
mod waiting_results;
mod writer;

pub use self::{
    contents::ExportContents,
    copy::copy,
    delete::{delete_conversation, delete_scope},
    error::{FileError, TransferError},
    export::{ExportFile, export},
    import::import,
    progress::{Event, Progress},
    receipt::{Counts, Difference, Operation, Outcome, OutcomeKind, Receipt, Refusal, Step},
    receipt_log::{ReceiptLog, ReceiptLogError, Transfer},
    selection::Selection,
};
