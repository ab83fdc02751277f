//! Reads the conversations that other systems have stored, and writes them to a history store.
//!
//! ```
//! use tower_chat::{
//!     ConversationKey, HistoryStore, MemoryStore,
//!     import::{Format, ImportOutcome, read, store},
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
//!     assert_eq!(store(&history, &key, &conversation).await?, ImportOutcome::Written);
//!     // Importing again has no effect.
//!     assert_eq!(store(&history, &key, &conversation).await?, ImportOutcome::Unchanged);
//! }
//! let coats = history.load(&ConversationKey::new("alice", "coats")).await?;
//! assert_eq!(coats.messages.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`read`] reads a file in one of the formats of [`Format`]. [`store`] writes a conversation to a
//! store. Requests can then continue the conversation. [`read`] reads all content that models
//! receive: texts, reasoning with the signature that the provider requires, calls, results and
//! media. Ids of messages, usage, and other data about answers are not read.
//! [`ImportedConversation::losses`] lists the content that cannot be stored.
//!
//! The module [`rows`] converts the history of a system that stores one row for each turn.

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
    store::{ImportError, ImportOutcome, compare, store},
};
