//! A `tower-chat` history store that encrypts the data of another store, for databases whose
//! readers must not read conversations.
//!
//! [`EncryptedStore`] wraps any [`HistoryStore`](tower_chat_core::store::HistoryStore), which need
//! not support encryption:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, author::Write};
//! use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
//!
//! let keys = MasterKeys::new("2026", SecretKey::random()?)?;
//! let store = EncryptedStore::new(MemoryStore::new(), keys);
//! let key = ConversationKey::new("alice", "support");
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a secret").into()]);
//! store.append(store.reserve().await?, vec![write]).await?;
//!
//! assert_eq!(store.load(&key).await?.messages.get(0).map(|it| it.text()), Some("a secret".into()));
//! let inside = format!("{:?}", store.inner().load(&key).await?);
//! assert!(!inside.contains("a secret"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What is encrypted
//!
//! In this documentation, to *seal* a value means to encrypt and authenticate it, and to *open* a
//! value means to verify and decrypt it. The following data are sealed:
//!
//! - the content of messages: texts, reasoning, media, provider items, authors and metadata;
//! - the arguments, results and errors of tool calls, in messages and in the record, which has one
//!   row for each call;
//! - service ids (the ids under which model services store conversations);
//! - the texts of unfinished answers and of summaries;
//! - the titles and metadata of conversations.
//!
//! Each value is sealed separately with XChaCha20-Poly1305 under a random nonce, and contains the
//! id of its key.
//!
//! Each value is authenticated with its scope, its conversation, its column (the kind of the
//! value), and the *life* of the conversation. The life is a random value that distinguishes a
//! conversation from a deleted one with the same key. A value of a message is also authenticated
//! with the sequence number and the id (the run and the index) of the message, and with its
//! position among the calls or results. A row of the record is authenticated as a whole: call,
//! tool, status, times, error, and the location of its result.
//!
//! The next run may load only a [part](tower_chat_core::store::HistoryStore::load_from) of a
//! conversation: leading messages, and the messages after a gap. This part is authenticated with
//! the digests of the last message before the gap and of the last message inside it.
//!
//! Instead of the service id, the inner store contains a sealed head. The sealed head contains the
//! life, the number of pruned messages (deleted with the oldest runs), the service id, and a
//! digest. The digest is that of the final message of the newest run that was committed by a write
//! without messages.
//!
//! A value that was moved to another position, or restored from another life, does not open.
//! Descriptions and summaries are not authenticated with the life. A description is authenticated
//! with its conversation and its version. The text of a summary is authenticated with its
//! conversation, its range, its id, and the id of the last message that it covers.
//!
//! Each message also contains a digest of the messages before it, and states whether it was staged.
//! The messages of a run are staged while the run is open: they are stored, but not visible to
//! readers until the run is committed. A message opens only after the same messages as when it was
//! written. Staged messages are accepted as visible messages only if the conversation also contains
//! the commit of their run.
//!
//! # What is stored in plaintext
//!
//! - scopes and ids of conversations;
//! - ids, roles, order and number of messages;
//! - names, ids, number, statuses and times of tool calls;
//! - ids of approval requests, and whether their tools need approval;
//! - the times, models, tokens and cost in the directory, the parents of branches, and whether
//!   there is a description;
//! - the positions of the part of a conversation that the next run loads;
//! - the ranges, times, models, tokens and cost of summaries;
//! - the size of every value, which grows by a third.
//!
//! # What a writer without the key can still do
//!
//! An attacker who can write to the inner store, and has no key, can read this plaintext, and can
//!
//! - delete a conversation, hide it from lists, or remove messages from its end, up to the boundary
//!   of a write or of a staged run; delete rows of the record;
//! - restore a whole older state of a conversation, or a life that was deleted;
//! - remove a summary, or restore an older one if the last message that it covers still has the
//!   same id;
//! - remove the part that the next run loads, or restore an older one, if the conversation still has
//!   the messages for which the part was stored;
//! - restore an older head, with an older service id, or an older row of the record, such as the
//!   row of a call that was still waiting for approval;
//! - make queries of the record return a call and its row from an older state, by replacing the
//!   messages too; the conversation then does not load;
//! - during a prune, remove messages from the beginning of the conversation, except messages that
//!   were written after the prune began. The same is possible after a crash has interrupted the
//!   prune, and after the attacker has restored the head from the time of the prune;
//! - discard an open run; change its start time, the message after which it begins, or its lease
//!   (the time until which no other process may take over the run); replace its id while the run
//!   has no staged messages. If the attacker commits a run, the conversation does not load;
//! - change counts, because the inner store computes the totals of tools and usage; remove a
//!   description;
//! - remove the mark that the inner store contains sealed data, so that the inner store no longer
//!   refuses changes without the keys;
//! - exploit values of the older formats, as described in the next section.
//!
//! # Update logs
//!
//! A detached run continues without its client, and its updates are stored in a separate log. With
//! the feature `delivery`, `EncryptedUpdateLog` encrypts the updates of any such log with the keys
//! of their conversations.
//!
//! # The former formats
//!
//! Values that begin with `tower-chat-1:` or `tower-chat-2:` still open. Messages of both formats
//! contain no digest of the messages before them, so that an attacker can mix two states of a
//! conversation message by message. In the second format, the life is the id of the run that
//! created the conversation. In the first format, values are bound to neither a life nor a message
//! id, and only the results and errors of rows are authenticated.
//!
//! A conversation that is entirely in the first format has no sealed head. Therefore an attacker
//! can remove the first messages of such a conversation, combine two lives of the conversation, and
//! change the service id, the run ids, and the statuses and results in the record. The next write
//! gives the conversation a sealed head of the current format, and later messages are accepted only
//! in that format. Even then, an attacker can remove the head together with all messages and rows
//! of the current format. An attacker can also replace the head with a plaintext service id while
//! no process loads the conversation.
//!
//! A store with [`EncryptedStore::without_former_values`] accepts no former format, and prevents
//! all of these changes. Releases before the current format cannot read values of the current
//! format.
//!
//! # Keys
//!
//! A [`KeyProvider`] returns a key for each conversation. [`MasterKeys`] derives the keys from one
//! secret. [`ErasableKeys`] creates a random key for each conversation, so that erasing a key
//! erases the conversation in all copies of the data. Keys can be rotated without downtime: new
//! values are sealed with the new key, and the old key still opens older values. If several
//! processes share a store, all processes must have the new key before the first process seals a
//! value with this key.
//!
//! Erasing a key makes all values sealed with it unreadable. Outer stores, such as a cache, contain
//! the plaintext and are not notified. Therefore erase a key in this order:
//! 1. End the conversation's runs and [`flush`](tower_chat_core::store::HistoryStore::flush) the
//!    store, because a later write is sealed with a new key.
//! 2. Erase the key.
//! 3. Remove the conversation from every cache.
//!
//! # Differences to the inner store
//!
//! - A process has to read the head of a conversation before it writes to the conversation, as
//!   every run does. A write of a process that does not know the life is refused, and can be
//!   repeated.
//! - A [`prune`](tower_chat_core::store::Maintenance::prune) is three writes.
//! - A [fork](tower_chat_core::store::Maintenance::fork_at) reads and opens the original and seals
//!   it for its new position. A fork is one submission of several writes, which a crash can
//!   interrupt.
//! - A query of the record returns copies of the results that are in messages.
//! - A [rewrite](tower_chat_core::store::Maintenance::rewrite) of a message also seals all later
//!   messages of the conversation again.
//! - A persistent store records that it contains sealed data, and refuses changes that do not come
//!   from this wrapper ([`StoreError::Sealed`](tower_chat_core::store::StoreError::Sealed)), except
//!   for deletions.
//! - A conversation may be [repaired](tower_chat_core::store::Maintenance::rewrite), and its open
//!   runs examined, only through this store. This store cannot rewrite a message that the inner
//!   store cannot read, because a rewritten message is sealed for its id in the inner store.

mod chain;
mod digests;
mod envelope;
mod erasable_keys;
mod error;
mod fork;
mod key;
mod master_keys;
mod provider;
mod range;
mod record;
mod seal;
mod sealing_cache;
mod store;
#[cfg(feature = "delivery")]
mod update_log;

#[cfg(feature = "delivery")]
pub use self::update_log::EncryptedUpdateLog;
pub use self::{
    envelope::is_sealed_message,
    erasable_keys::ErasableKeys,
    error::EncryptionError,
    key::SecretKey,
    master_keys::MasterKeys,
    provider::{KeyError, KeyProvider},
    store::EncryptedStore,
};
