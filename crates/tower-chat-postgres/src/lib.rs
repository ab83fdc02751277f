//! A `tower-chat` history store in PostgreSQL, for programs on several machines.
//!
//! [`PostgresStore`] is a [`HistoryStore`](tower_chat_core::store::HistoryStore): open it once,
//! clone it freely.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_chat_core::{ConversationKey, Message, MessageId, RunId};
//! use tower_chat_core::store::{HistoryStore, Revision, author::Write};
//! use tower_chat_postgres::PostgresStore;
//!
//! let store = PostgresStore::connect("postgres://chat@localhost/chat").await?;
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
//! A write is one statement, which is one transaction. Most writes append a few messages after the last
//! one. Their statement contains every row, finds the row of the conversation at the expected revision,
//! and stores everything. All other writes, and those that find another revision, call a database
//! function. The function locks the row, checks the revision, and stores everything or returns the reason
//! for a refusal. A conflict therefore takes a second round trip. With row-level security all writes call
//! the function.
//!
//! A read is one round trip too. The first use of a statement on a connection takes one more round
//! trip to prepare the statement. A copy takes several round trips.
//!
//! # Durability
//!
//! A write that was acknowledged is as durable as the server makes a commit: with
//! `synchronous_commit = on`, PostgreSQL's default, it survives the loss of power.
//!
//! # Failures of the server
//!
//! If the server is unreachable or does not answer, a write is sent again until
//! [`with_retry_timeout`](PostgresOptions::with_retry_timeout) has passed, and then fails with a
//! retryable error. The write is stored once even if its first acknowledgement was lost, because the
//! server finds its id. A write without messages that claims tool calls, and a deletion, have no id.
//! Operations without an id are not sent again if they may have been executed, and their error is not
//! retryable.
//!
//! A read-only server refuses a write with
//! [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly). After a failover, the
//! next writes open new connections and reach the new primary server.
//!
//! # Behind a pooler
//!
//! No statement depends on the session: the only `SET` is `SET LOCAL`, advisory locks end with
//! their transaction, and there are no temporary objects. Prepared statements belong to a
//! connection. If a pooler shares connections between transactions, such as PgBouncer with `pool_mode =
//! transaction` before version 1.21, turn prepared statements
//! [off](PostgresOptions::with_prepared_statements). The pooler may otherwise send the name of a
//! statement to a connection on which another process has prepared a different statement by that name. In
//! the best case the server then refuses the request. `docs/scaling.md` lists the settings that a pooler
//! does not forward.
//!
//! # Several processes
//!
//! Any number of processes may use one database and start at the same time. One of them creates the
//! tables. Within a process, writes to one conversation are stored in the order of their
//! submission, and writes to different conversations are stored concurrently.
//!
//! # The tables
//!
//! The tables are in a schema of their own. The key of the conversation is the first part of every
//! primary key, the database generates no numbers, and each transaction changes one conversation.
//! The tables can therefore be divided by conversation, over
//! [partitions](PostgresOptions::with_partitions) or servers. Only
//! [`list`](tower_chat_core::store::Directory::list),
//! [`open_runs`](tower_chat_core::store::Journal::open_runs) and queries of the record without
//! a conversation read a whole scope.
//!
//! The statement of an append also updates the directory: the row of the conversation, and one row
//! for each run and model in `run_usage`. The conversations of a scope are
//! [listed](tower_chat_core::store::Directory::conversations) by an index on the hour of their
//! last activity, which changes once an hour. Those of all scopes are sorted. The store compares
//! metadata itself, and reads more conversations if few match.
//!
//! A process of an older release that has the database open during the migration can continue. The
//! directory then includes the conversations that it creates, but neither counts nor times of its
//! appends.
//!
//! Keys, names and ids are stored as bytes (`convert_from(scope, 'UTF8')` shows them), because
//! PostgreSQL's `text` cannot contain U+0000. For a scope or an id longer than 512 bytes, the key
//! contains its beginning and its SHA-256, and another column contains the whole text. Messages are
//! JSON text.
//!
//! # The update log
//!
//! `PostgresUpdateLog` (feature `delivery`) stores the updates of detached runs in two tables of the
//! same schema. Notifications (`LISTEN`) wake waiting readers, on one connection for each log. If they
//! do not arrive, for example behind a pooler that shares connections between transactions, readers
//! read their run every 250 ms.
//!
//! # Deleting
//!
//! Deleted rows remain in the files until `VACUUM` runs. `VACUUM` does not overwrite them, but makes
//! their space reusable; `VACUUM FULL` rewrites the tables. The write-ahead log contains them until it is
//! recycled, and backups until they are deleted.

mod activity;
mod append;
mod connections;
mod conversation;
mod directory;
mod directory_migration;
mod directory_statements;
mod directory_usage;
mod failure;
mod fork;
mod functions;
mod invocations;
mod list;
mod maintenance;
mod maintenance_statements;
mod message;
mod open_error;
mod options;
mod parameter;
mod plain_append;
mod prune;
mod read;
mod schema;
mod sent_statement;
mod server_settings;
mod server_statements;
mod statements;
mod store;
mod stored_key;
mod telemetry;
mod tls;
mod tool_row;
#[cfg(feature = "delivery")]
mod update_log;

#[cfg(feature = "delivery")]
pub use self::update_log::PostgresUpdateLog;
pub use self::{
    open_error::OpenError, options::PostgresOptions, server_settings::ServerSettings,
    store::PostgresStore,
};

#[cfg(test)]
mod inspection;
