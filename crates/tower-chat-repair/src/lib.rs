//! Checks what is in a store, and repairs it.
//!
//! Replay repairs what a model is sent of a conversation at each load, and leaves the store as it is. This crate
//! reports what is wrong with the stored rows themselves, and changes them in place: the number, the order and the
//! ids of messages stay.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use tower_chat::{
//!     ConversationKey, MemoryStore, Message, MessageId, RunId, ToolCall,
//!     repair::{Repair, Target, repair, verify},
//!     store::{HistoryStore, Revision, author::Write},
//! };
//! let store = MemoryStore::new();
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let key = ConversationKey::new("alice", "weather");
//! // A run of another program, which was killed while its tool ran.
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
//! [`mismatches`], [`repaired`] and [`extract`] do the same for messages that are in no store.

#![warn(clippy::too_many_lines)]

mod directory;
mod error;
mod extract;
mod finding;
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
