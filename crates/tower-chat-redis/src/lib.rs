//! A `tower-chat` history store in Redis or Valkey, for programs on several machines, with an
//! optional time to live.
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
//! A write is one script, which the server executes atomically: it makes all checks, then stores
//! everything, at a cost that does not depend on the conversation's length. The first write of a
//! conversation takes one more round trip to add it to the list of its scope. If the server does
//! not know a script, for example after a restart, the store sends its code. A conversation is
//! loaded in pages of about 1 MB. Each page blocks the server for some milliseconds.
//!
//! # Durability
//!
//! An acknowledged write is as durable as the server's settings make it. With Redis's default
//! settings, a crash loses everything since the last snapshot. Set `appendonly yes`, and
//! `appendfsync always` unless the loss of a second is acceptable. [`WriteConcern`] has a table of
//! the settings, and can make writes wait for replicas and their disks.
//!
//! A server that evicts keys when its memory is full (`maxmemory-policy` other than `noeviction`)
//! is refused, unless that is [allowed](RedisOptions::allow_eviction). When the memory of a server
//! with `noeviction` is full, reading, deleting, pruning and discarding a run still work. Other
//! writes, and descriptions, fail until there is free memory.
//!
//! # Failures of the server
//!
//! If the server is unreachable, a write is sent again until
//! [`with_retry_timeout`](RedisOptions::with_retry_timeout) has passed, and then fails with a retryable
//! error. The write is stored once even if its first acknowledgement was lost, because the script finds
//! its id. A write without messages that claims tool calls, and a deletion, have no id. Operations
//! without an id are not sent again if they may have been executed, and their error is not retryable. A
//! write that reached a replica is sent once more over a new connection, which may lead to the new
//! primary after a failover.
//!
//! While a slot of a cluster is migrated to another server, most requests for its conversations are
//! refused: their keys are moved one by one, and the store does not follow individual keys. The store
//! repeats the requests until the retry timeout has passed, as if the server were unreachable.
//!
//! # Several processes
//!
//! Any number of processes may use one server. Within a process, writes to one conversation are
//! stored in the order of their submission, and writes to different conversations are stored
//! concurrently.
//!
//! # The keys
//!
//! A conversation has up to six keys: `tower-chat:{alice/support}:head`, and `messages`, `tools`,
//! `calls`, `pending` and `directory` in place of `head`. The part in braces puts all of them on
//! one server of a cluster; braces inside it are escaped. A scope or an id longer than 128 bytes is
//! shortened to its beginning and its SHA-256. Each scope has a list of its conversations,
//! `tower-chat:{alice/*}:list`, which may be on another server. Readers of the list verify each
//! conversation and remove ids of conversations that no longer exist.
//! [`open_runs`](tower_chat_core::store::Journal::open_runs) and queries of the record without
//! a conversation read every conversation on the list.
//!
//! The key `tower-chat:sealed` records whether a store contains encrypted data. Older releases did
//! not write it. The first plain change of a store without it searches all conversations for such
//! data; their lists are found among the names of all keys (`SCAN`).
//!
//! # The directory
//!
//! The directory entry of a conversation is in its key `directory`. The script of each write updates it,
//! without another round trip. A [`summary`](tower_chat_core::store::Directory::summary) is one request,
//! regardless of the length of the conversation. [`runs`](tower_chat_core::store::Directory::runs) and
//! the usage of a conversation are one request too, and read the rows of all its runs.
//!
//! There is no index by last activity. Such an index would be on another server of a cluster than the
//! conversations, and each write would take one more round trip. Therefore
//! [`conversations`](tower_chat_core::store::Directory::conversations) reads every conversation on the
//! list of the scope for each page, 256 at a time, and
//! [`usage`](tower_chat_core::store::Directory::usage) does so 32 at a time. The results are exact, and
//! the cost grows with the number of conversations, regardless of the limit. A query over all scopes
//! first finds their lists among the names of all keys of the server, or of each primary of the cluster
//! (`SCAN`), including keys of other programs. While a slot of a cluster is migrated, a scope may be
//! missed. Conversations with an unreadable entry are on the first page.
//!
//! A conversation of a release without a directory gets its entry when it is first read or written.
//! Its times are those of its run ids, its runs are counted from the remaining messages, and its
//! usage begins at zero. All its messages are read once, in pages.
//!
//! # The update log
//!
//! `RedisUpdateLog` (feature `delivery`) stores the updates of detached runs. A run has a key with its
//! record and a stream of its updates, `tower-chat:{alice/support}:run-log:...` and `run-updates`, on the
//! server of its conversation. Both expire with the run. An index of all runs, with the keys
//! `tower-chat:{runs}:times` and `names`, may be on another server. A message on the channel
//! `tower-chat:runs` wakes waiting readers, on one connection for each log. If the messages do not arrive,
//! for example because the user may not use the channel, readers read their run every 250 ms.
//!
//! # Deletion and expiry
//!
//! Deleted and pruned data are removed from memory at once. With
//! [`with_time_to_live`](RedisOptions::with_time_to_live) all keys of a conversation expire at one
//! moment. Its id stays on the list of its scope until the list is next read. Append-only files and
//! snapshots contain deleted data until they are rewritten (`BGREWRITEAOF`, `BGSAVE`).
//!
//! # Features
//!
//! `tls` encrypts connections (`rediss://`); `cluster` connects to Redis Cluster
//! (`RedisOptions::connect_cluster`); `delivery` adds the update log.

mod answer;
mod append;
mod connections;
mod conversation;
mod directory;
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
mod sealed_data;
mod server_info;
mod server_settings;
mod settings;
mod store;
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod tool_row;
#[cfg(feature = "delivery")]
mod update_log;
mod waiting;
mod write_concern;

#[cfg(feature = "delivery")]
pub use self::update_log::RedisUpdateLog;
pub use self::{
    open_error::OpenError, options::RedisOptions, server_settings::ServerSettings,
    store::RedisStore, write_concern::WriteConcern,
};
