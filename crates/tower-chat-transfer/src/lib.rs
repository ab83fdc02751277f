//! Copies whole conversations between stores and files, and deletes whole scopes.
//!
//! Use it to change the store of an application, or to export or delete the data of a user. Every
//! transfer works in bounded memory, reports its [progress](Event), can be stopped at any await and
//! continued, and ends with a [`Receipt`].
//!
//! ```
//! # futures_util::FutureExt::now_or_never(async {
//! use std::io::Cursor;
//! use tower_chat::{
//!     ConversationKey, HistoryStore, MemoryStore,
//!     transfer::{ExportFile, Selection, delete_scope, export, import},
//! };
//! # use tower_chat::{Message, message::MessageId, run::RunId, store::{Revision, author::Write}};
//! # let store = MemoryStore::new();
//! # let key = ConversationKey::new("alice", "support");
//! # let id = MessageId { run: RunId::new(), index: 0 };
//! # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
//! # store.append(store.reserve().await?, vec![write]).await?;
//! // All conversations of alice are written to a file; any `AsyncWrite` works.
//! let alice = Selection::scope("alice");
//! let mut file = Vec::new();
//! export(&store, &alice, ExportFile::new(&mut file), &mut |_event| Ok(())).await?;
//!
//! // The conversations are deleted and imported again.
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
//! The following data of an imported or copied conversation are preserved: its messages with their ids,
//! the record of tool calls, its description, times, service id and number of runs, and the times, mode
//! and usage of every run, including pruned and discarded ones. An open run is open at the target too,
//! with all its staged messages, and its lease has ended. The run can then be resumed in both stores, but
//! should be in only one, because its tools would run in both.
//!
//! The following data are not preserved. The [receipt](TransferStep::differences) of each affected
//! conversation reports them:
//!
//! - the sequence numbers after pruned messages, because a store numbers the messages from 1;
//! - in a conversation that [`fork`] created, the directory has no rows for the copied runs. The
//!   target has a row for each of them, without usage, with the time of the copy;
//! - the mode of the last run, if no row of a run contains it.
//!
//! The version of the description and the incarnation of the conversation are never preserved. A
//! conversation without visible messages and without an open run, because all its runs were
//! discarded, is not copied; [`delete_scope`] deletes it.
//!
//! # The file
//!
//! The file contains JSON Lines. The first line is `{"format":"tower-chat","version":1}`. The last
//! line, `complete`, contains the number of conversations and the SHA-256 of all lines before it. A
//! conversation consists of the following lines:
//!
//! - a line `conversation`;
//! - a line `run` for each run of the directory;
//! - a line `message` for each message, with its sequence number, its id and its [stored
//!   form](tower_chat_core::format). This line is followed by a line `tool` for each row of the record of
//!   tool calls whose call and result are in this message or earlier ones;
//! - a line `tool` for each row with a result that is in no message;
//! - if a run is open, a line `open_run`, and its messages and rows, marked `"staged":true`;
//! - a line `end` with the counts and the SHA-256 of the conversation's lines.
//!
//! If a conversation changes while it is read, or cannot be read to its end, its lines end with
//! `abandoned` instead of `end`, and an import ignores them. A conversation that changed is read
//! again, and its lines follow again. Times are in milliseconds since 1970.
//!
//! [`fork`]: tower_chat_core::store::Maintenance::fork

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
    receipt::{
        Counts, Difference, Operation, OutcomeKind, Receipt, TransferOutcome, TransferRefusal,
        TransferStep,
    },
    receipt_log::{ReceiptLog, ReceiptLogError, Transfer},
    selection::Selection,
};
