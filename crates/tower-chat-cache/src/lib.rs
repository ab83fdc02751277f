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
//! acknowledged the write, the cached state includes the write, and the history need not be loaded
//! again. Data that readers have [derived](tower_chat_core::store::author::HistoryMemo) from the
//! history remain in the entry too.
//!
//! While a write is in flight, the entry of its conversation is empty, and reads go to the inner
//! store. A load therefore includes every write that was submitted before the load. If the write
//! fails, or its [ticket](tower_chat_core::store::author::Ticket) is dropped before it has an
//! outcome, the cache removes the entry. Staged messages of an open run are cached separately until
//! its commit.
//!
//! [`Revalidation`] decides when the cache notices writes of other processes. A stale entry causes
//! no wrong write: each write contains the revision that it expects. A write that was made from a
//! stale entry therefore fails with a conflict, and the cache removes the entry.
//!
//! The [summary in force](tower_chat_core::store::HistorySummary) is cached with the head, and is
//! read again when the head contains the id of another summary. After a summary was added or
//! removed, the cached messages remain, and the next lookup reads the head.
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
//! Reads of open runs, lists, and queries of the record of tool calls always go to the
//! inner store. The pending approvals of a head are cached only until a write that may change them.
//!
//! # In a stack of stores
//!
//! Put the cache around a store that decrypts, compresses or accesses a network, not inside it. The
//! store then does this work only once for each conversation. Create one cache, and
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
