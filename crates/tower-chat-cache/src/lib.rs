//! For programs whose `tower-chat` store is slow to reach: [`CachingStore`] keeps the store's
//! conversations in memory, [`WriteBehindStore`] gathers its writes.
//!
//! Each is put around any [`HistoryStore`](tower_chat_core::store::HistoryStore), and is one itself:
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
//! assert_eq!(store.head(&key).await?.revision, Revision::ABSENT); // read from the store inside
//!
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
//! store.append(store.reserve().await?, vec![write]).await?;
//! assert_eq!(store.load(&key).await?.messages.len(), 1); // known from the write
//! assert_eq!(store.statistics().hits, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What is kept, and when it is right
//!
//! Heads and histories of the conversations that were used last, up to a number of bytes. A write
//! goes through to the store inside. Once it is acknowledged it is applied to what is kept, with
//! [`History::apply`](tower_chat_core::store::History::apply): what is known of a history, such as
//! its replay, is known of the longer one too. While a write is under way, and after one that failed
//! or whose ticket was dropped before its outcome was seen, what was kept of its conversation is
//! forgotten and the store inside is asked, which keeps the promise that a load sees what was
//! submitted before it. What an open run stages is kept apart until its commit.
//!
//! Other processes that write to the same store are noticed as [`Revalidation`] says. Whatever it
//! says, a write expects a revision, so nothing is ever stored after something that its writer has
//! not seen: a cache that is behind costs a conflict, and is up to date afterwards.
//!
//! # What is not
//!
//! Open runs with their content, lists, and questions to the record of tool calls always go to the
//! store inside. The pending approvals of a head are known as long as there are none; where there
//! are some, the next change of the record has the head read again.
//!
//! # In a stack of stores
//!
//! The cache belongs outside of stores that decrypt, compress or cross a network, so that the work
//! is done once. Layers and clones share one cache: make one, and clone it. Two caches around clones
//! of one store do not see each other's writes, unless they revalidate.
//!
//! Where writes are slow too, and the last fraction of a second may be lost, put a
//! [`WriteBehindStore`] inside, of a store that encrypts too.
//!
//! What is kept is in clear: after the key of a conversation was erased, have it forgotten with
//! [`CachingStore::forget`].

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
mod write_behind;

pub use self::{
    options::{CacheOptions, Revalidation},
    statistics::CacheStatistics,
    store::CachingStore,
    write_behind::WriteBehindStore,
};

#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
mod tests;
