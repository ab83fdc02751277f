//! [`CachingStore`]: a store that wraps another `tower-chat` store and caches its conversations in
//! memory.
//!
//! The inner store is any [`HistoryStore`](tower_chat_core::store::HistoryStore), and
//! `CachingStore` implements this trait too:
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
//! number of bytes. The cache submits each write to the inner store. Once the inner store has
//! acknowledged the write, the cache applies the write to the cached state with
//! [`Head::advance`](tower_chat_core::store::Head::advance). Data that readers derive from a
//! history, such as its replay, therefore need not be computed again for the messages before the
//! write.
//!
//! The entry of a conversation is empty while a write is in flight. The cache removes the entry if
//! the write fails, or if the [ticket](tower_chat_core::store::author::Ticket) of the write is
//! dropped before it has an outcome. Without an entry, reads go to the inner store, so that a load
//! includes every write that was submitted before the load. Staged messages of an open run are
//! cached separately until its commit.
//!
//! [`Revalidation`] decides when writes of other processes are noticed. With every setting, a write
//! contains the expected revision, so that no write can follow messages that its writer has not
//! read. If a cache entry is stale, a write that was made from it fails with a conflict, and the
//! cache removes the entry.
//!
//! The [summary in force](tower_chat_core::store::HistorySummary) is cached with the head, and is
//! read again when the head contains the id of another summary. Adding or removing a summary leaves
//! the cached messages in the cache. The next lookup then reads the head.
//!
//! # Parts of conversations
//!
//! If only a [part](tower_chat_core::store::HistoryStore::load_from) of a conversation was loaded,
//! the cache contains this part, and adds the messages of later writes to it. A load of the whole
//! conversation, or of a part with more messages, reads the inner store, and its result replaces
//! the part.
//!
//! # What is not cached
//!
//! Open runs with their content, lists, and queries of the record of tool calls always go to the
//! inner store. The pending approvals of a head are cached. The pending approvals become unknown
//! after a write that adds pending approvals, and after a write that changes the record of tool
//! calls while approvals are pending. The next lookup of the head then reads the inner store.
//!
//! # In a stack of stores
//!
//! Wrap stores that decrypt, compress or access a network in the cache, and not the other way
//! round. Such a store then does its work only once for each conversation. Create one cache, and
//! pass clones of it to all layers, because clones share the cached data. Two separate caches of
//! one store do not notice each other's writes, unless they revalidate.
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
