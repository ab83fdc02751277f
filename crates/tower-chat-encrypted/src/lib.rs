//! For programs whose database is read by people who must not read conversations: a `tower-chat`
//! history store that encrypts what another one keeps.
//!
//! [`EncryptedStore`] is put around any [`HistoryStore`](tower_chat_core::store::HistoryStore), which
//! need not know of it:
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
//! The content of every message (texts, reasoning, media, provider items, authors, metadata), the
//! arguments of tool calls, their results, in messages and in the record, their errors, the ids under
//! which services keep conversations, the text of an answer that was cut off, and the titles and
//! metadata of conversations. Each value is sealed
//! by itself with XChaCha20-Poly1305 under a random nonce, and names the key it was sealed with.
//!
//! Authenticated with each value are scope, conversation, number of the message, id of the message
//! (its run and index there), position of the call or result, column, and the *life* of the
//! conversation: one that is deleted and begun again is in another life. A row of the record is
//! authenticated as a whole: call, tool, status, times, error, and where its result is. A sealed head,
//! which the store inside keeps instead of the service id, has the life, how many messages were
//! pruned, and the service id. A description is authenticated with its conversation and its version,
//! and with no life. So a value that was moved, or is of another life, does not open.
//!
//! # What stays in clear
//!
//! Scopes and ids of conversations; ids, roles, order and number of messages; names and ids of tool
//! calls, how many there are, their statuses and times; ids of approval requests, and whether their tools
//! need approval; what the directory says of times, models, tokens and cost, and whether there is a
//! description; and the size of everything, a third larger than it was.
//!
//! # What a writer without the key can still do
//!
//! Who can write to the inner store, and has no key, can read what stays in clear, and:
//!
//! - delete a conversation, hide it from lists, or remove messages from its end; remove rows of the
//!   record;
//! - bring back an older state of a conversation, of its head (an older service id), of a row (a call
//!   that waits for approval again, with the result that was recorded apart then), or a life that
//!   was deleted, if all of it is brought back;
//! - show, in answers to questions to the record, a call with its row from another life, if the
//!   messages are replaced too: the conversation does not load then;
//! - while a prune is under way, or if it was cut short by a crash, remove as many messages from the
//!   beginning as there were when it began;
//! - end an open run (commit what is staged, or discard it), change its lease, when it was opened, and
//!   after which message it begins to be staged; name another run as the open one while no message of
//!   it is staged;
//! - count wrongly: totals of tools and usage are counted inside; take a description away;
//! - with values of the former format, what the next section says.
//!
//! # The former format
//!
//! Values that begin with `tower-chat-1:` still open. They are bound to no life and to no message id,
//! rows of that format are authenticated in their results and errors alone, and a conversation all of
//! which is of that format has no sealed head: its beginning can be cut off, its service id, run ids,
//! statuses and results in the record changed, and two lives be mixed. A conversation gets its sealed
//! head with the next write; messages that are sealed after it are taken in the new format alone.
//! Who can write to the store inside can take the head away together with all messages and rows of
//! the new format, or, while nothing is loaded, put a service id in clear in its place.
//! [`EncryptedStore::without_former_values`] refuses all of this. Releases before the new format
//! cannot read what this one writes.
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
//! A conversation's head has to be read before it is written, as every run does: a write of a process
//! that does not know the life is refused, and can be tried again.
//! A [`prune`](tower_chat_core::store::HistoryStore::prune) is three writes.
//! A [`fork`](tower_chat_core::store::HistoryStore::fork) is sealed for its new position, so it is read,
//! opened and written again: as one submission of several writes, which a crash can cut short.
//! Results that its record finds in messages are copied into the record.
//! A conversation may be [repaired](tower_chat_core::store::HistoryStore::rewrite), and its open runs
//! examined, only through this store. What is rewritten is sealed for the ids that the messages have in the
//! store inside, so a message that cannot be read there is not rewritten.

mod envelope;
mod erasable_keys;
mod error;
mod fork;
mod key;
mod lives;
mod master_keys;
mod provider;
mod record;
mod seal;
mod store;

pub use self::{
    envelope::is_sealed_message,
    erasable_keys::ErasableKeys,
    error::EncryptionError,
    key::SecretKey,
    master_keys::MasterKeys,
    provider::{KeyError, KeyProvider},
    store::EncryptedStore,
};
