//! For programs on many machines that have PostgreSQL: a `tower-chat` history store in its tables.
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
//! A write is one statement, which is one transaction. Most writes are a few messages after the last
//! one: their statement spells every row out, finds the row of the conversation as it is expected,
//! and stores everything. For all others, and for those that find it otherwise, a function in the
//! database locks that row, checks the revision, and stores everything, or says why not: a conflict
//! takes a second round trip. With row-level security the function does all of them.
//!
//! A question is one round trip too. The first use of a statement on a connection takes one more, to
//! prepare it. A copy takes several.
//!
//! # What is durable, and when
//!
//! A write that was acknowledged is as durable as the server makes a commit: with
//! `synchronous_commit = on`, PostgreSQL's default, it survives the loss of power.
//!
//! # When the server goes away
//!
//! A write is sent again, for as long as [`with_patience`](PostgresOptions::with_patience) lasts, and so is one to
//! which no answer comes; then its error is retryable. It is stored once, though its first answer may
//! have been lost: its id is looked for. Where that cannot be known it is not sent again, and the
//! error is not retryable: a write without messages that claims tool calls, and a deletion.
//!
//! A server that only reads refuses a write with
//! [`StoreError::ReadOnly`](tower_chat_core::store::StoreError::ReadOnly). Where another server has
//! taken over, the writes that follow find it, over connections that are made anew.
//!
//! # Behind a pooler
//!
//! No statement relies on what another transaction has set: there is no `SET` but `SET LOCAL`, no
//! advisory lock but those that end with their transaction, and nothing temporary. Prepared statements
//! belong to a connection, so where transactions are pooled, as by PgBouncer with
//! `pool_mode = transaction` before version 1.21, turn them
//! [off](PostgresOptions::with_prepared_statements): a pooler that hands a name on to another
//! connection may meet the statement of another process under it, which is refused at best.
//! `docs/scaling.md` has the settings that a pooler does not pass on.
//!
//! # Several processes
//!
//! Any number of processes may use one database, and start at once: one of them makes the tables.
//! Within a process, writes to one conversation are stored in the order in which they were
//! submitted, and writes to different conversations side by side.
//!
//! # The tables
//!
//! They lie in a schema of their own. The key of the conversation leads every primary key, no number
//! is given out by the database, and no transaction has more than one conversation, so they can be
//! divided by conversation, over [partitions](PostgresOptions::with_partitions) or servers. Only
//! [`list`](tower_chat_core::store::HistoryStore::list),
//! [`open_runs`](tower_chat_core::store::HistoryStore::open_runs) and questions to the record that
//! name no conversation read a whole scope.
//!
//! What the directory says is written by the append itself, in the same statement: in the row of the
//! conversation, and in one row for each run and model in `run_usage`. The conversations of a scope are
//! [listed](tower_chat_core::store::HistoryStore::conversations) along an index on the hour of their last
//! activity, which changes once an hour; those of all scopes are sorted. Metadata are compared by the
//! store, which reads more conversations where few fit.
//!
//! A process of an older release that has the database open while it is brought up to date goes on, and
//! the directory has the conversations that it makes, but neither counts nor times of what it appends.
//!
//! Keys, names and ids are kept as bytes (`convert_from(scope, 'UTF8')` shows them), since
//! PostgreSQL's text cannot hold U+0000. Of a scope or an id longer than 512 bytes, its beginning
//! and its SHA-256 stand in the keys, and the whole beside them. Messages are JSON text.
//!
//! # Deleting
//!
//! The rows of what is deleted stay in the files until the server cleans up: `VACUUM` overwrites
//! nothing, but lets their room be used again; `VACUUM FULL` writes the tables anew. The log holds
//! them until it is recycled, and backups for as long as they are kept.

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

pub use self::{
    open_error::OpenError, options::PostgresOptions, server_settings::ServerSettings,
    store::PostgresStore,
};

#[cfg(test)]
mod inspection;
