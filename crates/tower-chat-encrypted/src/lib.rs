//! A tower-chat history store that encrypts what another one keeps.
//!
//! [`EncryptedStore`] is put around any [`HistoryStore`](tower_chat_core::store::HistoryStore), which
//! need not know of it:
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use tower_chat_core::{ConversationKey, MemoryStore, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, Write};
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
//! The content of every message (texts, reasoning, media, provider items, authors, metadata), the
//! arguments of tool calls, their results, in messages and in the record, their errors, and the text
//! of an answer that was cut off. Each value is sealed by itself with XChaCha20-Poly1305 under a
//! random nonce, and names the key it was sealed with. Scope, conversation, number of the message and
//! column are authenticated with it, so that a value that was moved to another place does not open.
//!
//! # What stays in clear
//!
//! Scopes and ids of conversations; ids, roles, order and number of messages; names and ids of tool
//! calls, how many there are, their statuses and times; ids of approval requests, and whether their tools
//! need consent; the ids under which services keep conversations; and the size of everything, a third
//! larger than it was.
//!
//! An attacker who can write to the store inside can remove messages from the end of a conversation,
//! or bring an older state of it back; this is not noticed.
//!
//! # Keys
//!
//! A [`KeyProvider`] has a key for each conversation: [`MasterKeys`] derives them from one secret,
//! [`ErasableKeys`] draws each at random, so that erasing it erases the conversation, wherever
//! copies of it are. Rotation needs no pause: new values are sealed under the new key while the
//! old one still opens what was sealed before. Where several processes share a store, all must know a
//! new key before the first writes with it.
//!
//! A key that is erased makes what was sealed with it unreadable. Stores around this one have the clear
//! text, and do not learn of it: first let the conversation's runs end and
//! [`flush`](tower_chat_core::store::HistoryStore::flush) a store that gathers writes, since what it
//! stores later is sealed under a new key; then erase; then have every cache forget the conversation.
//!
//! # What is different from the store inside
//!
//! A [`fork`](tower_chat_core::store::HistoryStore::fork) is sealed for its new place, so it is read,
//! opened and written again: as one submission of several writes, which a crash can cut short.
//! Results that its record finds in messages are copied into the record.
//! A conversation may be repaired, and its open runs examined, only through this store.

mod envelope;
mod erasable_keys;
mod error;
mod fork;
mod key;
mod master_keys;
mod provider;
mod record;
mod seal;
mod store;

pub use self::{
    erasable_keys::ErasableKeys,
    error::EncryptionError,
    key::SecretKey,
    master_keys::MasterKeys,
    provider::{KeyError, KeyProvider},
    store::EncryptedStore,
};
