//! The update log.

use std::{pin::pin, sync::Arc};

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::{self, BoxStream},
};
use tokio_postgres::AsyncMessage;
use tower_chat_core::{BoxError, SharedError, store::author::milliseconds};
use tower_chat_delivery::{
    Erase, PositionedUpdate, RunKey, StoredUpdate, UpdateLogError, UpdateLogOptions,
    UpdatePosition,
    author::{FoundRun, Notifications, RunWrite, ServerLog, Wakeups},
};

use crate::{
    OpenError, PostgresOptions, PostgresStore,
    connections::{Connections, Connector, Query},
    failure::Failure,
    parameter::Values,
    schema, store,
    stored_key::key_part,
};

/// The name of the table that is created last, and the statements that create the tables. The
/// columns for the scope and the id of a conversation have the form of
/// [`StoredKey`](crate::stored_key::StoredKey). `ON DELETE CASCADE` also erases updates that an
/// append adds concurrently with an erasure.
const TABLES: (&str, &str) = (
    "{schema}.run_log_updates",
    "CREATE TABLE IF NOT EXISTS {schema}.run_log (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope bytea NOT NULL, conversation bytea NOT NULL, run bytea NOT NULL,
        record text NOT NULL, -- JSON
        last_at bigint NOT NULL, -- milliseconds since 1970
        UNIQUE (scope, conversation, run)) WITH (fillfactor = 70);
    CREATE INDEX IF NOT EXISTS run_log_by_time ON {schema}.run_log (last_at);
    CREATE TABLE IF NOT EXISTS {schema}.run_log_updates (
        run bigint NOT NULL REFERENCES {schema}.run_log ON DELETE CASCADE,
        position bigint NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (run, position));",
);
const FIND: &str = "SELECT record FROM {schema}.run_log
    WHERE scope = $1 AND conversation = $2 AND run = $3";
const READ: &str = "SELECT u.position, u.data FROM {schema}.run_log AS r
    JOIN {schema}.run_log_updates AS u ON u.run = r.id
    WHERE r.scope = $1 AND r.conversation = $2 AND r.run = $3 AND u.position > $4
    ORDER BY u.position LIMIT $5";
const INSERT: &str = "WITH changed AS (
        INSERT INTO {schema}.run_log (scope, conversation, run, record, last_at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING id)
    SELECT count(pg_notify($6, $7)) FROM changed";
/// The statement that replaces the record of a run and adds updates, unless another process has
/// changed the record.
const REPLACE: &str = "WITH changed AS (
        UPDATE {schema}.run_log SET record = $4, last_at = $5
        WHERE scope = $1 AND conversation = $2 AND run = $3 AND record = $8 RETURNING id
    ), added AS (
        INSERT INTO {schema}.run_log_updates (run, position, data)
        SELECT changed.id, new.position, new.data
        FROM changed, unnest($9::bigint[], $10::bytea[]) AS new (position, data))
    SELECT count(pg_notify($6, $7)) FROM changed";
/// The statement that erases up to 100 expired runs, and first the run in its parameters if it has
/// expired. Returns the number of remaining runs.
const SWEEP: &str = "WITH gone AS (
        DELETE FROM {schema}.run_log WHERE id IN (
            SELECT id FROM {schema}.run_log WHERE last_at <= $1
            ORDER BY run <> $2 LIMIT 100 FOR UPDATE SKIP LOCKED)
        RETURNING id)
    SELECT (SELECT count(*) FROM {schema}.run_log) - (SELECT count(*) FROM gone)";
/// The statement that erases the runs for which a condition is true, and wakes the readers of all
/// runs by a notification with an empty payload.
const ERASE: &str = "WITH gone AS (DELETE FROM {schema}.run_log WHERE {condition} RETURNING id)
    SELECT count(*), CASE WHEN count(*) > 0 THEN pg_notify($1, '') END FROM gone";

/// An update log in a PostgreSQL database, for processes on several machines.
///
/// The log has separate tables, in the schema that the options name, and can share the connections
/// of a store. These tables have no policies for row-level security. The log stores updates in
/// plaintext, even if the store of the histories encrypts its messages. `EncryptedUpdateLog` of
/// `tower-chat-encrypted` wraps this log and encrypts the updates.
///
/// Clones share one log. Notifications of the server wake waiting readers; see the documentation of
/// the crate. If several processes begin runs at the same time, each process may exceed the maximum
/// number of runs by one. Leases and expiry times use the clock of the process.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_chat_delivery::{DetachedRunsLayer, UpdateLogOptions};
/// use tower_chat_postgres::{PostgresStore, PostgresUpdateLog};
/// let store = PostgresStore::connect("postgres://chat@localhost/chat").await?;
/// let log = PostgresUpdateLog::from_store(&store, UpdateLogOptions::default()).await?;
/// let runs = DetachedRunsLayer::new(log);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresUpdateLog {
    server: Arc<Server>,
    wakeups: Arc<Wakeups>,
    options: Arc<UpdateLogOptions>,
}

#[derive(Debug)]
struct Server {
    connections: Arc<Connections>,
    /// The channel of the notifications.
    channel: String,
}

impl PostgresUpdateLog {
    /// Opens the log at an address with the default options, and creates its tables if they are
    /// missing.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the log cannot be opened.
    pub async fn connect(address: &str) -> Result<Self, OpenError> {
        Self::connect_with(address, PostgresOptions::new(), UpdateLogOptions::default()).await
    }

    /// Opens the log at an address. The log uses only those options in `server` that concern
    /// connections, the schema and migrations.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the log cannot be opened.
    pub async fn connect_with(
        address: &str,
        server: PostgresOptions,
        options: UpdateLogOptions,
    ) -> Result<Self, OpenError> {
        server.check()?;
        Self::open(Arc::new(store::connections(address, &server)?.0), options).await
    }

    /// Opens the log in the database and the schema of a store. The log uses the connections of the
    /// store.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the log cannot be opened.
    pub async fn from_store(
        store: &PostgresStore,
        options: UpdateLogOptions,
    ) -> Result<Self, OpenError> {
        Self::open(store.connections().clone(), options).await
    }

    async fn open(
        connections: Arc<Connections>,
        options: UpdateLogOptions,
    ) -> Result<Self, OpenError> {
        let layout = &connections.statements.layout;
        let schema = || layout.schema.clone();
        let mut client = connections.get().await.map_err(Failure::open_error)?;
        let created = schema::create(&mut client, layout, TABLES, connections.creates_tables).await;
        let exists = created.map_err(|error| {
            let source = Failure::of_statement(error).before_statement().classified();
            OpenError::Migrate { schema: schema(), source }
        })?;
        drop(client);
        if !exists {
            return Err(OpenError::NoTables { schema: schema() });
        }
        let channel = format!("tower_chat_runs_{:016x}", layout.lock());
        let server = Arc::new(Server { connections, channel });
        let wakeups = Arc::new(Wakeups::new(server.clone()));
        Ok(Self { server, wakeups, options: Arc::new(options) })
    }
}

#[async_trait]
impl ServerLog for PostgresUpdateLog {
    fn options(&self) -> &UpdateLogOptions {
        &self.options
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    async fn find(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<Option<FoundRun>, UpdateLogError> {
        let (scope, conversation, id) = stored_key(run);
        let (after, limit) = (after.to_integer(), i64::try_from(limit).unwrap_or(i64::MAX));
        let [find, read] = [FIND, READ].map(|sql| self.server.sql(sql));
        let find = Query { sql: &find, values: &[&scope, &conversation, &id] };
        let values: Values<'_> = &[&scope, &conversation, &id, &after, &limit];
        let read = Query { sql: &read, values };
        let connections = &self.server.connections;
        let [found, updates] = if limit == 0 {
            connections.read(READING, &scope, [find]).await.map(|[found]| [found, Vec::new()])
        } else {
            connections.read(READING, &scope, [find, read]).await
        }
        .map_err(|error| UpdateLogError::backend(READING, error.is_retryable(), error))?;
        let Some(row) = found.first() else { return Ok(None) };
        let record = row.try_get(0).map_err(unreadable)?;
        let updates = updates.iter().map(|row| {
            let position = UpdatePosition::from_integer(row.try_get(0).map_err(unreadable)?);
            let data = String::from_utf8(row.try_get(1).map_err(unreadable)?);
            let data = data.map_err(|error| UpdateLogError::Undecodable {
                run: run.clone(),
                position,
                source: SharedError::new(error),
            })?;
            Ok(PositionedUpdate { position, update: StoredUpdate::new(data) })
        });
        Ok(Some(FoundRun { record, updates: updates.collect::<Result<_, UpdateLogError>>()? }))
    }

    async fn write(&self, run: &RunKey, write: RunWrite<'_>) -> Result<bool, UpdateLogError> {
        let (scope, conversation, id) = stored_key(run);
        let (action, again, channel) = ("write a run", write.is_repeatable, &self.server.channel);
        let (record, last_at, name) = (&write.record, &write.last_at, run.run.to_string());
        let Some(found) = &write.found else {
            let values: Values<'_> = &[&scope, &conversation, &id, record, last_at, channel, &name];
            return Ok(self.server.count(action, again, INSERT, values).await? == 1);
        };
        let (positions, data): (Vec<i64>, Vec<&[u8]>) = write
            .positioned()
            .map(|(position, data)| (position.to_integer(), data.as_bytes()))
            .unzip();
        let values: Values<'_> = &[
            &scope,
            &conversation,
            &id,
            record,
            last_at,
            channel,
            &name,
            found,
            &positions,
            &data,
        ];
        Ok(self.server.count(action, again, REPLACE, values).await? == 1)
    }

    async fn sweep(&self, run: &RunKey) -> Result<u64, UpdateLogError> {
        let expired_at = milliseconds::of(self.options.expired_at());
        let values: Values<'_> = &[&expired_at, &run.run.to_bytes().to_vec()];
        self.server.count("erase expired runs", true, SWEEP, values).await
    }

    async fn erase_runs(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        let action = "erase runs";
        let erase = async |condition: &str, values: Values<'_>| {
            let sql = ERASE.replace("{condition}", condition);
            self.server.count(action, true, &sql, values).await
        };
        let channel = &self.server.channel;
        match what {
            Erase::Conversation(key) => {
                let (scope, conversation) = (key_part(key.scope()), key_part(key.id()));
                let condition = "scope = $2 AND conversation = $3";
                erase(condition, &[channel, &scope, &conversation]).await
            }
            Erase::Scope(scope) => erase("scope = $2", &[channel, &key_part(scope)]).await,
            Erase::EndedBy(time) => {
                erase("last_at <= $2", &[channel, &milliseconds::of(time)]).await
            }
            other => Err(UpdateLogError::backend(action, false, format!("unknown: {other:?}"))),
        }
    }
}

impl Server {
    /// Executes a statement that returns one number, and returns this number.
    async fn count(
        &self,
        action: &'static str,
        is_repeatable: bool,
        sql: &str,
        values: Values<'_>,
    ) -> Result<u64, UpdateLogError> {
        let query = Query { sql: &self.sql(sql), values };
        let row = self.connections.change(action, is_repeatable, query).await;
        let row =
            row.map_err(|error| UpdateLogError::backend(action, error.is_retryable(), error))?;
        row.try_get(0).map(i64::unsigned_abs).map_err(unreadable)
    }

    fn sql(&self, sql: &str) -> String {
        self.connections.statements.layout.with_schema(sql)
    }
}

#[async_trait]
impl Notifications for Server {
    async fn subscribe(&self) -> Result<BoxStream<'static, String>, BoxError> {
        let Connector { config, tls } = &self.connections.connector;
        let (client, mut connection) = config.connect(tls.clone()).await?;
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context)).boxed();
        let listen = format!("LISTEN {}", self.channel);
        {
            // The client makes progress only while the stream of messages is polled.
            let mut listen = pin!(client.batch_execute(&listen));
            loop {
                match select(listen.as_mut(), messages.next()).await {
                    Either::Left((listens, _)) => break listens?,
                    Either::Right((Some(message), _)) => drop(message?),
                    Either::Right((None, _)) => return Err("the connection was closed".into()),
                }
            }
        }
        // The stream owns the client, because dropping the client would close the connection.
        let texts = stream::unfold((client, messages), |(client, mut messages)| async {
            loop {
                if let AsyncMessage::Notification(found) = messages.next().await?.ok()? {
                    return Some((found.payload().to_owned(), (client, messages)));
                }
            }
        });
        Ok(texts.boxed())
    }

    async fn notify(&self, text: &str) -> Result<(), BoxError> {
        let sql = "SELECT count(pg_notify($1, $2))";
        let values: Values<'_> = &[&self.channel, &text];
        Ok(self.count("send a notification", true, sql, values).await.map(drop)?)
    }
}

const READING: &str = "read updates";

fn unreadable(error: tokio_postgres::Error) -> UpdateLogError {
    UpdateLogError::backend("decode a row", false, error)
}

/// Returns the scope, the conversation and the id of a run, as the tables contain them.
fn stored_key(run: &RunKey) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let key = &run.conversation;
    (key_part(key.scope()), key_part(key.id()), run.run.to_bytes().to_vec())
}
