//! Checks the contents of a store, and repairs them.
//!
//! When a run loads a conversation, replay repairs the messages that the model receives, and leaves
//! the stored messages unchanged. This crate checks and repairs the stored rows themselves. A
//! repair does not change the number, the order or the ids of the messages of a conversation.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use tower_chat::{
//!     ConversationKey, HistoryStore, MemoryStore, Message, ToolCall, message::MessageId,
//!     repair::{Repair, Target, repair, verify},
//!     run::RunId,
//!     store::{Revision, author::Write},
//! };
//! let store = MemoryStore::new();
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let key = ConversationKey::new("alice", "weather");
//! // The process of this run was killed while a tool ran.
//! let messages = [
//!     Message::user("Weather?"),
//!     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
//! ];
//! let write = Write::new(key, id, Revision::ABSENT, messages.map(Into::into));
//! store.append(store.reserve().await?, vec![write]).await?;
//!
//! let target = Target::new(store);
//! let verified = verify(&target, &mut |problem| eprintln!("{problem}")).await?;
//! assert_eq!((verified.problems, verified.messages), (1, 2));
//! let repaired = repair(&target, &mut |change| {
//!     if let Repair::Done(finding) = change {
//!         eprintln!("{finding}");
//!     }
//! })
//! .await?;
//! assert_eq!((repaired.repaired, repaired.left), (1, 0));
//! assert_eq!(verify(&target, &mut |_| {}).await?.problems, 0);
//! # Ok::<(), tower_chat::BoxError>(())
//! # }).unwrap();
//! ```
//!
//! [`mismatches`], [`repaired`] and [`extract`] check and repair messages that are not in a store.

#![warn(clippy::too_many_lines)]

mod directory;
mod error;
mod extract;
mod finding;
mod history_summaries;
mod messages;
mod plan;
mod problems;
mod repair;
mod rows;
mod sealed;
#[cfg(feature = "sqlite")]
mod sqlite;
mod target;
mod verify;

pub use self::{
    error::RepairError,
    extract::extract,
    finding::Finding,
    messages::{
        Filling, Mismatch, REMOVED_RESULTS, mismatches, mismatches_of_readable, repaired,
        repaired_records,
    },
    problems::{Problem, problems},
    repair::{Repair, Repaired, plan_repair, repair},
    target::Target,
    verify::{Verified, verify},
};
pub use tower_chat_layers::replay::INTERRUPTED;
