//! A `tower-chat` history store in Redis or Valkey, for programs on several machines, with an
//! optional time to live.
//!
//! [`RedisStore`] implements [`HistoryStore`](tower_chat_core::store::HistoryStore). A program
//! opens the store once; clones of the store are cheap.
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
//! The store executes a write as one script, which the server executes atomically. The script makes
//! all checks, and then stores the whole write, at a cost that does not depend on the length of the
//! conversation. The first write of a conversation takes an additional round trip, which adds the
//! conversation to the list of its scope. If the server has not cached a script, for example after
//! a restart, the store sends the code of the script. A load reads pages of about 1 MB, each of
//! which blocks the server for some milliseconds.
//!
//! # Durability
//!
//! The settings of the server determine the durability of an acknowledged write. With Redis's
//! default settings, a crash loses all writes since the last snapshot. Set `appendonly yes`. Also
//! set `appendfsync always`, unless the application can accept the loss of the last second.
//! [`WriteConcern`] has a table of the settings, and can make writes wait for replicas and their
//! disks.
//!
//! Opening the store fails if the server evicts keys when its memory is full (a `maxmemory-policy`
//! other than `noeviction`), unless the options [allow eviction](RedisOptions::allow_eviction).
//! When the memory of a server with `noeviction` is full, the store can still read, delete and
//! prune conversations, and discard runs. All other changes fail until the server has free memory.
//!
//! # Failures of the server
//!
//! If the server is unreachable, the store sends a write again until
//! [`with_retry_timeout`](RedisOptions::with_retry_timeout) has passed. The write then fails with a
//! retryable error. A write whose first acknowledgement was lost is stored only once, because the
//! script recognises the id of the write when the store sends it again. Two operations have no id:
//! a write without messages that claims tool calls, and a deletion. If such an operation may have
//! been executed, the store does not send it again, and returns an error that is not retryable. If
//! a replica refuses a write, the store sends the write again over a new connection, because after
//! a failover the address may refer to the new primary.
//!
//! While a slot of a cluster is migrated to another server, the servers refuse most requests for
//! the conversations of this slot, because the keys of one conversation are temporarily on two
//! servers. The store repeats these requests until the retry timeout has passed.
//!
//! # Several processes
//!
//! Any number of processes may use one server. Within a process, writes to one conversation are
//! stored in the order of their submission, and writes to different conversations are stored
//! concurrently.
//!
//! # The keys
//!
//! A conversation has up to seven keys: `tower-chat:{alice/support}:head`, and six keys whose names
//! end with `messages`, `tools`, `calls`, `pending`, `directory` and `summaries` instead of `head`.
//! The hash tag, which is the part in braces, makes a cluster store all keys of a conversation on
//! one server. Braces in a scope or an id are escaped. A scope or an id longer than 128 bytes is
//! replaced with its beginning and its SHA-256. Each scope has a list of its conversations,
//! `tower-chat:{alice/*}:list`, which may be on another server. A reader of the list checks that
//! each conversation exists, and removes the ids of conversations that no longer exist.
//! [`open_runs`](tower_chat_core::store::Journal::open_runs), and queries of the record that do not
//! name a conversation, read every conversation on the list.
//!
//! The key `tower-chat:sealed` records whether a store contains encrypted data. Older releases did
//! not write this key. If the key is missing, the first change that is not encrypted searches all
//! conversations of the store for encrypted data. For this search the store finds the lists of
//! conversations among the names of all keys (`SCAN`).
//!
//! # The directory
//!
//! The directory entry of a conversation (its description, times, counts and usage) is stored in
//! its key `directory`. The script of each write updates the entry without an additional round
//! trip. A [`summary`](tower_chat_core::store::Directory::summary) is one request, regardless of
//! the length of the conversation. [`runs`](tower_chat_core::store::Directory::runs) and the usage
//! of one conversation are also one request each, and read the rows of all runs of the
//! conversation.
//!
//! The directory has no index by last activity. In a cluster, such an index would be on another
//! server than most conversations, so that each write would take an additional round trip.
//! Therefore [`conversations`](tower_chat_core::store::Directory::conversations) reads all
//! conversations on the list of the scope for each page, 256 at a time, and
//! [`usage`](tower_chat_core::store::Directory::usage) reads them 32 at a time. The results are
//! exact. The cost of a page is proportional to the number of conversations in the scope,
//! regardless of the limit. A query over all scopes first finds the lists of all scopes among the
//! names of all keys of the server, or of each primary of the cluster (`SCAN`), including keys of
//! other programs. While a slot of a cluster is migrated, such a query may miss a scope.
//! Conversations whose entry cannot be read are on the first page.
//!
//! A conversation that was created by a release without a directory gets its entry when it is first
//! read or written. The store derives the times in this entry from the ids of the runs, counts the
//! runs in the remaining messages, and sets the usage to zero. To create the entry, the store reads
//! all messages of the conversation once, in pages.
//!
//! # The update log
//!
//! `RedisUpdateLog` (feature `delivery`) stores the updates of detached runs, which continue
//! without their clients. A run has two keys, on the server of its conversation: the record of the
//! run (`tower-chat:{alice/support}:run-log:...`), and a stream with its updates
//! (`tower-chat:{alice/support}:run-updates:...`). Both keys expire with the run. The index of all
//! runs has the keys `tower-chat:{runs}:times` and `tower-chat:{runs}:names`, which may be on
//! another server. Each log opens one connection on which it receives messages of the channel
//! `tower-chat:runs`, which wake waiting readers. If the messages do not arrive, for example
//! because the user has no permission for the channel, every reader reads its run every 250 ms.
//!
//! # Deletion and expiry
//!
//! The server removes deleted and pruned data from its memory immediately. With
//! [`with_time_to_live`](RedisOptions::with_time_to_live), all keys of a conversation expire at the
//! same time. The id of an expired conversation remains on the list of its scope until the list is
//! next read. Append-only files and snapshots contain deleted data until the server rewrites these
//! files (`BGREWRITEAOF`, `BGSAVE`).
//!
//! # Features
//!
//! `tls` encrypts connections (`rediss://`); `cluster` connects to Redis Cluster
//! (`RedisOptions::connect_cluster`); `delivery` adds the update log.

mod answer;
mod append;
mod branches;
mod connections;
mod conversation;
mod directory;
mod failure;
mod fork;
mod history_summary;
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
