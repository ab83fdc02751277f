//! For programs on many machines that have Redis or Valkey: a `tower-chat` history store there, with a
//! time to live where that is wanted.
//!
//! [`RedisStore`] is a [`HistoryStore`](tower_chat_core::store::HistoryStore): open it once,
//! clone it freely.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_chat_core::{ConversationKey, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, author::Write};
//! use tower_chat_redis::RedisStore;
//!
//! let store = RedisStore::connect("redis://localhost/").await?;
//! let key = ConversationKey::new("alice", "support");
//! let id = MessageId { run: RunId::new(), index: 0 };
//! let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
//!
//! let slot = store.reserve().await?;
//! store.append(slot, vec![write]).await?;
//! assert_eq!(store.load(&key).await?.messages.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Round trips
//!
//! A write is one script, which the server does as a whole and before anything else: it checks
//! everything, then stores everything, and costs the same whatever the conversation's length. The
//! first write of a conversation takes one round trip more, to put it on the list of its scope.
//! Where the server does not know a script, because it was started again, that is found out and
//! the script is sent. A conversation is loaded in pages of about 1 MB, for some milliseconds each
//! in which the server does nothing else.
//!
//! # What is durable, and when
//!
//! A write that was acknowledged is as durable as the server's settings make it, and those that
//! Redis comes with lose everything since the last snapshot. Set `appendonly yes`, and `appendfsync
//! always` unless a second may be lost. [`Durability`] has the whole table, and waits for replicas
//! and their disks where that is asked for. A server that throws data away when its memory is full
//! (`maxmemory-policy` other than `noeviction`) is refused, unless that is
//! [allowed](RedisOptions::allow_eviction). When its memory is full, reading, deleting and pruning
//! go on, and so does the end of a run that is discarded; other writes, and descriptions, fail until there is room.
//!
//! # When the server goes away
//!
//! A write is sent again, for as long as [`with_patience`](RedisOptions::with_patience) lasts; then its
//! error is retryable. It is stored once, though its first answer may have been lost: its id is
//! looked for. Where that cannot be known it is not sent again, and the error is not retryable:
//! a write without messages that claims tool calls, and a deletion. A write that came to a replica is
//! sent once more over a new connection, which after a failover may lead to the new primary.
//!
//! While a slot of a cluster is moved to another server, most of what is asked of its conversations
//! is refused: their keys go one by one, and the store does not follow those that went ahead. It asks
//! again for as long as patience lasts, as if the server were away.
//!
//! # Several processes
//!
//! Any number of processes may use one server. Within a process, writes to one conversation are
//! stored in the order in which they were submitted, and writes to different conversations side by
//! side.
//!
//! # The keys
//!
//! A conversation has up to six: `tower-chat:{alice/support}:head`, and `messages`, `tools`, `calls`,
//! `pending` and `directory` instead of `head`. What stands in braces is escaped, so that it has none, and puts all
//! of them on one server of a cluster. Of a scope or an id longer than 128 bytes, its beginning and
//! its SHA-256 stand there. A scope has a list of its conversations, `tower-chat:{alice/*}:list`, on
//! whichever server that lies. It is brought up to date by who reads it and never shows what is not
//! there; [`open_runs`](tower_chat_core::store::HistoryStore::open_runs) and questions to the record
//! that name no conversation ask every conversation on it.
//!
//! # The directory
//!
//! What the directory has of a conversation is in its key `directory`, which the script of each write
//! brings up to date: it costs no round trip. A
//! [`summary`](tower_chat_core::store::HistoryStore::summary) is one question, whatever the length of
//! the conversation; [`runs`](tower_chat_core::store::HistoryStore::runs) and the usage of a
//! conversation are one too, and read what is stored of all its runs.
//!
//! There is no index by last activity. It would lie on another server of a cluster than the
//! conversations, and each write would take a round trip more. So
//! [`conversations`](tower_chat_core::store::HistoryStore::conversations) asks every conversation on
//! the list of the scope, 256 at a time, for each page, and
//! [`usage`](tower_chat_core::store::HistoryStore::usage) does so 32 at a time: the answers are
//! exact, and the cost grows with the number of conversations, whatever the limit. Where no scope is
//! named, the lists of all scopes are looked for first, among the names of all keys of the server or of
//! each primary of the cluster (`SCAN`), those of other programs too. While a slot of a cluster is
//! moved, that may miss a scope. Conversations whose entry cannot be read are on the first page.
//!
//! A conversation that was made by a release without a directory gets its entry when it is first read
//! or written. Its times are those of its run ids, its runs are counted from the messages that are
//! left, and its usage begins at zero. All its messages are gone through once, in pages.
//!
//! # The end of a conversation
//!
//! What is deleted or pruned is gone from memory at once. With
//! [`with_time_to_live`](RedisOptions::with_time_to_live) a conversation ends by itself, all of it at one
//! moment. Its id stays on the list of its scope until that is read the next time. Append-only files
//! and snapshots hold what was deleted until they are written anew (`BGREWRITEAOF`, `BGSAVE`).
//!
//! # Features
//!
//! `tls` encrypts connections (`rediss://`); `cluster` connects to Redis Cluster
//! (`RedisOptions::connect_cluster`).

mod answer;
mod append;
mod connections;
mod conversation;
mod directory;
mod durability;
mod failure;
mod fork;
mod invocations;
mod list;
mod maintenance;
mod message;
mod names;
mod open_error;
mod options;
mod prune;
mod read;
mod script;
mod server_info;
mod server_settings;
mod settings;
mod store;
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod tool_row;
mod waiting;

pub use self::{
    durability::Durability, open_error::OpenError, options::RedisOptions,
    server_settings::ServerSettings, store::RedisStore,
};
