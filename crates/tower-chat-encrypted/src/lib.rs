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
//! conversation: a random value, so that one that is deleted and begun again is in another life. A row of the
//! record is authenticated as a whole: call, tool, status, times, error, and where its result is. A sealed
//! head, which the store inside has instead of the service id, contains the life, how many messages were
//! pruned, and the service id. A description is authenticated with its conversation and its version,
//! and with no life. A value that was moved, or is of another life, does not open.
//!
//! Each message also contains a digest of the messages before it, and whether it was staged. So the
//! messages of a conversation open together or not at all: in the order in which they were written, each
//! behind those that were there then, and with a commit behind what was staged.
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
//! An attacker who can write to the inner store, and has no key, can read what stays in clear, and:
//!
//! - delete a conversation, hide it from lists, or remove messages from its end, up to the boundary of a write,
//!   or of a run that was staged; remove rows of the record;
//! - bring back a whole older state of a conversation, or a life that was deleted;
//! - bring back an older head, with an older service id, or a row of the record as it was before, such as
//!   one of a call that waits for approval;
//! - show, in answers to questions to the record, a call of another state with its row, if the messages are
//!   replaced too: the conversation does not load then;
//! - while a prune is under way, or if a crash has cut it short, remove as many messages from the
//!   beginning as there were when it began; the same with the head of that moment later;
//! - discard an open run, change its lease, when it was opened, and after which message it begins to be
//!   staged; name another run as the open one while no message of it is staged. A run that is committed
//!   without the key leaves a conversation that does not load;
//! - count wrongly: totals of tools and usage are counted inside; take a description away;
//! - take the mark away by which the store refuses changes without the keys;
//! - with values of the former formats, what the next section says.
//!
//! # The former formats
//!
//! Values that begin with `tower-chat-1:` or `tower-chat-2:` still open. Messages of both contain no digest
//! of the messages before them: two states of a conversation can be mixed message by message. In the second,
//! a life is the run that began it. Values of the first are bound to no life and to no message id,
//! rows of that format are authenticated in their results and errors alone, and a conversation all of
//! which is of that format has no sealed head: its beginning can be cut off, its service id, run ids,
//! statuses and results in the record changed, and two lives be mixed. With the next write a conversation
//! gets a sealed head of the present format; messages that are sealed after it are accepted in that format
//! alone. A writer of the inner store can take the head away together with all messages and rows of
//! the present format, or, while nothing is loaded, put a service id in clear in its place.
//! [`EncryptedStore::without_former_values`] refuses all of this. Releases before the present format
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
//! A [rewrite](tower_chat_core::store::HistoryStore::rewrite) of a message also seals those after it anew.
//! A store that outlives its process remembers that it holds sealed data, and refuses changes from outside of
//! this wrapper ([`StoreError::Sealed`](tower_chat_core::store::StoreError::Sealed)), except for deletions.
//! A conversation may be [repaired](tower_chat_core::store::HistoryStore::rewrite), and its open runs
//! examined, only through this store. What is rewritten is sealed for the ids that the messages have in the
//! store inside, so a message that cannot be read there is not rewritten.

mod chain;
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
