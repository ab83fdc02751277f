//! Copies whole conversations between stores and files, and deletes whole scopes.
//!
//! Use this crate to move an application to another store, or to export or delete the data of a
//! user. Every transfer needs a bounded amount of memory, reports its [progress](Event) to a
//! callback, and returns a [`Receipt`]. A transfer may be stopped at any await, and a later call
//! continues it.
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
//! An import and a copy preserve the following data of a conversation:
//!
//! - its messages with their ids, and the record of tool calls (one row for each call);
//! - its description, times, number of runs, and service id (the id under which the provider's
//!   service stores the history), and its parent if it is a branch;
//! - its [summaries](tower_chat_core::store::Summaries);
//! - the times, mode and usage of every run, including pruned and discarded runs;
//! - its open run, whose messages are staged and not part of the history yet. At the target, the
//!   lease of the run is expired, so that any process may continue the run. Continue the run in
//!   only one of the two stores, because otherwise its tools run twice.
//!
//! The following data are not preserved. The [step](TransferStep::differences) of each affected
//! conversation reports the difference:
//!
//! - the sequence numbers of a conversation whose oldest messages were pruned, because the target
//!   numbers the messages from 1. If a branch was forked from such a conversation, the position of
//!   the fork is still a sequence number of the source, and does not fit the new numbers;
//! - the runs that [`fork_at`] has copied to a branch in the source. The source has their messages,
//!   but no data about their times and usage. The target stores these runs without usage and with
//!   the time of the fork;
//! - the mode of the last run, if the source has no data about this run;
//! - the summaries, if the target store has no summaries. A summary of which all messages were
//!   pruned is not written either, because the target has none of these messages.
//!
//! The version of the description and the incarnation of the conversation (a random number with
//! which stores detect that a conversation was replaced) are never preserved. A conversation that
//! has neither visible messages nor an open run, because all its runs were discarded or because it
//! is a branch without messages, is not copied. [`delete_scope`] deletes such a conversation too.
//!
//! # The file
//!
//! The file contains JSON Lines. The first line is `{"format":"tower-chat","version":1}`. The last
//! line, `complete`, contains the number of conversations and the SHA-256 of all lines before it. A
//! conversation consists of the following lines:
//!
//! - a line `conversation`;
//! - a line `run` for each run with its times, mode and usage;
//! - a line `message` for each message, with its sequence number, its id and its [stored
//!   form](tower_chat_core::format);
//! - a line `tool` for each row of the record of tool calls. The line follows the message with the
//!   result of the call, or, if the call has no result, the message with the call. If the result is
//!   in no message, the line follows the last message;
//! - a line `summary` for each summary, in the order of the messages that they cover;
//! - if a run is open, a line `open_run`, followed by the staged messages and rows of this run,
//!   which are marked with `"staged":true`;
//! - a line `end` with the counts and the SHA-256 of the conversation's lines.
//!
//! If a conversation changes while the export reads it, or cannot be read to its end, the last line
//! of the conversation is `abandoned` instead of `end`. An import ignores all lines of such a
//! conversation. A conversation that has changed is read again, and written again after the line
//! `abandoned`. Times are in milliseconds since 1970.
//!
//! [`fork_at`]: tower_chat_core::store::Maintenance::fork_at

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
