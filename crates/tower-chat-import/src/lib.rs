//! For programs that bring along the histories which other systems have stored.
//!
//! ```
//! use tower_chat::{
//!     ConversationKey, MemoryStore,
//!     import::{Format, Outcome, read, store},
//!     store::HistoryStore,
//! };
//! # use std::fs;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_chat::BoxError> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("history.jsonl");
//!
//! fs::write(&path, concat!(
//!     r#"{"id": "coats", "messages": [{"role": "user", "content": "Does it rain?"}]}"#, "\n",
//!     r#"{"id": "hats", "messages": [{"role": "user", "content": "Is it windy?"}]}"#, "\n",
//! ))?;
//! let history = MemoryStore::new();
//! for conversation in read(Format::OpenAiChat, &path)? {
//!     for loss in &conversation.losses {
//!         eprintln!("{}: {loss}", conversation.id);
//!     }
//!     let key = ConversationKey::new("alice", &*conversation.id);
//!     assert_eq!(store(&history, &key, &conversation).await?, Outcome::Written);
//!     // Importing again changes nothing.
//!     assert_eq!(store(&history, &key, &conversation).await?, Outcome::Unchanged);
//! }
//! let coats = history.load(&ConversationKey::new("alice", "coats")).await?;
//! assert_eq!(coats.messages.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`read`] takes a file in one of the formats of [`Format`], and [`store`] stores a conversation of it,
//! which then goes on like any other. What is read is what models are sent again: texts, reasoning with
//! the signatures that its provider wants back, calls, results, media. Ids of messages, usage and what
//! else systems store about an answer are not read. What of the content cannot be kept is named by
//! [`ImportedConversation::losses`].
//!
//! [`rows`] is for systems of your own, that store one row for each turn.

#![warn(clippy::too_many_lines)]

mod agent_framework;
mod content;
mod conversation;
mod detect;
mod document;
mod error;
mod format;
mod langgraph;
mod node;
mod openai_agents;
mod provider;
mod pydantic_ai;
mod read;
pub mod rows;
mod sqlite;
mod store;
mod vercel_ui;

pub use self::{
    conversation::{Effect, ImportedConversation, Loss},
    error::ReadError,
    format::{Format, ParseFormatError},
    read::read,
    store::{ImportError, Outcome, compare, store},
};
