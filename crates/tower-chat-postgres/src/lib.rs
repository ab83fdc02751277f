//! A `tower-chat` history store in PostgreSQL, for programs on several machines.
//!
//! [`PostgresStore`] implements [`HistoryStore`](tower_chat_core::store::HistoryStore). A program
//! opens the store once; clones of the store are cheap.
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
//! A write is one statement, which is a transaction by itself. Most writes append a few messages at
//! the end of a conversation. For such a write the store sends a statement with all new rows. The
//! statement updates the row of the conversation if the conversation is at the expected revision,
//! and inserts the new rows. For all other writes, and if the conversation is at another revision,
//! the store calls a database function. The function locks the row of the conversation, checks the
//! revision, and either stores the write or returns the reason for a refusal. A conflict therefore
//! takes a second round trip. With row-level security, all writes call the function.
//!
//! A read is also one round trip. The first use of a statement on a connection takes an additional
//! round trip, which prepares the statement. Copying a conversation takes several round trips.
//!
//! # Durability
//!
//! An acknowledged write has the durability of a commit on the server: with
//! `synchronous_commit = on`, PostgreSQL's default, the write survives a power loss.
//!
//! # Failures of the server
//!
//! If the server is unreachable or does not answer, the store sends a write again until
//! [`with_retry_timeout`](PostgresOptions::with_retry_timeout) has passed. The write then fails
//! with a retryable error. A write whose first acknowledgement was lost is stored only once,
//! because the server recognises the id of the write when the store sends it again. Two operations
//! have no id: a write without messages that claims tool calls, and a deletion. If such an
//! operation may have been executed, the store does not send it again, and returns an error that is
//! not retryable.
//!
//! A read-only server refuses a write with
//! [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly). After a failover, the
//! next writes open new connections and reach the new primary server.
//!
//! # Behind a pooler
//!
//! No statement depends on the state of a session: the store uses `SET LOCAL` instead of `SET`,
//! advisory locks end with their transaction, and the store creates no temporary objects. Prepared
//! statements, however, belong to a connection. If a pooler shares connections between transactions
//! without supporting prepared statements, such as PgBouncer with `pool_mode = transaction` before
//! version 1.21, disable [prepared statements](PostgresOptions::with_prepared_statements).
//! Otherwise the pooler may send the name of a prepared statement to another connection, on which
//! another process has prepared a different statement with the same name. Usually the server then
//! refuses the request, but it may also execute the wrong statement. `docs/scaling.md` lists the
//! settings that a pooler does not forward.
//!
//! # Several processes
//!
//! Any number of processes may use one database. If several processes start at the same time, one
//! of them creates the tables. Within a process, writes to one conversation are stored in the order
//! of their submission, and writes to different conversations are stored concurrently.
//!
//! # The tables
//!
//! The tables are in a separate PostgreSQL schema. The key of the conversation is the first part of
//! every primary key, the tables contain no numbers that the database generates, and each
//! transaction changes one conversation. Therefore the tables can be divided by conversation into
//! [partitions](PostgresOptions::with_partitions), or distributed over several servers. Only
//! [`list`](tower_chat_core::store::Directory::list),
//! [`open_runs`](tower_chat_core::store::Journal::open_runs) and queries of the record without a
//! conversation read a whole scope.
//!
//! The statement of an append also updates the directory: the row of the conversation, and one row
//! for each run and model in `run_usage`. The conversations of a scope are
//! [listed](tower_chat_core::store::Directory::conversations) by an index on the hour of their last
//! activity, so that appends change the index at most once an hour. For a list of the conversations
//! of all scopes, the server sorts all conversations. For a query by metadata or state, the store
//! itself compares each conversation, and reads further conversations if few of them match.
//!
//! A process of an older release that has the database open during the migration can continue. The
//! directory then contains the conversations that this process creates, but not the counts and
//! times of its appends.
//!
//! Keys, names and ids are stored as bytes (`convert_from(scope, 'UTF8')` shows them), because
//! PostgreSQL's `text` cannot contain U+0000. For a scope or an id longer than 512 bytes, the key
//! contains its beginning and its SHA-256, and another column contains the whole text. Messages are
//! stored as JSON text.
//!
//! # The update log
//!
//! `PostgresUpdateLog` (feature `delivery`) stores the updates of detached runs, which continue
//! without their clients, in two tables of the same schema. Each log opens one connection on which
//! it receives notifications (`LISTEN`), which wake waiting readers. If notifications do not
//! arrive, for example behind a pooler that shares connections between transactions, every reader
//! reads its run every 250 ms.
//!
//! # Deleting
//!
//! Deleted rows remain in the files of the database. `VACUUM` does not overwrite deleted rows, but
//! lets later rows use their space. `VACUUM FULL` rewrites the tables without deleted rows. The
//! write-ahead log contains deleted data until PostgreSQL recycles its files, and backups contain
//! them until the backups are deleted.

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
mod history_summary;
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
