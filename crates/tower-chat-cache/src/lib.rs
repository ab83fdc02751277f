//! [`CachingStore`]: a store that wraps another `tower-chat` store and caches its conversations in
//! memory.
//!
//! It wraps any [`HistoryStore`](tower_chat_core::store::HistoryStore), and is one itself:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
//! use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, author::Write};
//!
//! let options = CacheOptions::new().with_max_bytes(64 << 20).with_revalidation(Revalidation::Never);
//! let store = CachingStore::with_options(MemoryStore::new(), options);
//! let key = ConversationKey::new("alice", "support");
//! assert_eq!(store.head(&key).await?.revision, Revision::ABSENT); // read from the inner store
//!
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
//! store.append(store.reserve().await?, vec![write]).await?;
//! assert_eq!(store.load(&key).await?.messages.len(), 1); // computed from the write
//! assert_eq!(store.statistics().hits, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What is cached
//!
//! The cache contains the heads and histories of the most recently used conversations, up to a
//! number of bytes. A write is passed on to the inner store. Once it is acknowledged, it is applied
//! to the cached state with [`Head::advance`](tower_chat_core::store::Head::advance). Data
//! derived from a history, such as its replay, therefore stay valid for the longer history.
//!
//! The entry of a conversation is empty while a write is in flight. The cache removes the entry after a
//! failed write, and if the ticket was dropped before its outcome. Reads then go to the inner store, so
//! that a load includes the writes submitted before it. Staged messages of an open run are cached
//! separately until its commit.
//!
//! [`Revalidation`] decides when writes of other processes are noticed. With every setting, a write
//! contains the expected revision, so that no write follows messages that its writer has not read.
//! A write from a stale entry fails with a conflict, and the entry is removed.
//!
//! # What is not cached
//!
//! Open runs with their content, lists, and queries of the record of tool calls always go to the
//! inner store. The pending approvals of a head are cached. The next lookup of the head reads the
//! inner store after a write that adds pending approvals, or that changes the record of tool calls
//! while the head has pending approvals.
//!
//! # In a stack of stores
//!
//! Put the cache outside of stores that decrypt, compress or access a network, so that their work
//! is done once. Layers and clones share one cache: create one, and clone it. Two caches around
//! clones of one store do not notice each other's writes, unless they revalidate.
//!
//! The cache contains plaintext. After the key of a conversation was erased, remove the
//! conversation with [`CachingStore::forget`].

mod cache_entry;
mod cached;
mod conversations;
mod in_flight;
mod load_guard;
mod options;
mod statistics;
mod store;
mod submission;
mod sync;
mod telemetry;
mod weight;

pub use self::{
    options::{CacheOptions, Revalidation},
    statistics::CacheStatistics,
    store::CachingStore,
};

#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
mod tests;
