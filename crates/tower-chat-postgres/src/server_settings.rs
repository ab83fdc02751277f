//! What a server is set to, for those who check it.

use std::time::Duration;

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{
    OpenError, PostgresOptions,
    failure::{Failure, Meaning},
    schema,
    server_statements::{RIGHTS, SETTINGS, TABLE},
    store,
};

/// What a server, the role and the tables are set to, as far as it matters to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The version of the server, such as `17.6`.
    pub version: String,
    /// The same as a number, such as 170006.
    pub version_number: i32,
    /// How the database holds text.
    pub encoding: String,
    /// Whether the server waits for its disk. Without it a loss of power may damage the database.
    pub fsync: bool,
    /// Whether pages that a loss of power has torn can be mended.
    pub full_page_writes: bool,
    /// What a commit waits for: `on`, or less, or more.
    pub synchronous_commit: String,
    /// The longest that a statement of the store may take; `None` if there is no limit.
    pub statement_timeout: Option<Duration>,
    /// Whether that is what the options say. If it is not, something between the store and the server,
    /// such as PgBouncer, does not pass startup parameters on.
    pub has_statement_timeout_of_options: bool,
    /// How long a transaction may do nothing; `None` if there is no limit.
    pub idle_in_transaction_timeout: Option<Duration>,
    /// How long a connection may do nothing; `None` if there is no limit.
    pub idle_session_timeout: Option<Duration>,
    /// How many connections the server takes of ordinary roles.
    pub max_connections: i64,
    /// How many connections it has now, those of others too, as far as the role may see them.
    pub connections: i64,
    /// How many connections a store with these options makes at most.
    pub max_connections_of_store: usize,
    /// Whether the server takes rows away that are not needed any more.
    pub autovacuum: bool,
    /// How many transactions old the oldest row of the database may be.
    pub freeze_age: i64,
    /// The age at which the server begins to renew such rows, whatever else it has to do.
    pub freeze_max_age: i64,
    /// Whether the server is a replica, or only reads for another reason.
    pub is_read_only: bool,
    /// The role that the store uses.
    pub role: String,
    /// Whether policies of tables do not apply to the role: it is a superuser, or has `BYPASSRLS`.
    pub role_bypasses_policies: bool,
    /// The version of the tables; `None` if there are none.
    pub tables_version: Option<i64>,
    /// The version of the tables that this release writes.
    pub supported_version: i64,
    /// Whether the role may read and write the tables, or make them where there are none.
    pub can_write: bool,
    /// Whether the server itself keeps scopes apart; `None` if there are no tables.
    pub row_level_security: Option<bool>,
}

/// Asks the server at an address.
pub(crate) async fn ask(
    address: &str,
    options: &PostgresOptions,
) -> Result<ServerSettings, OpenError> {
    let (connections, layout) = store::connections(address, options)?;
    let client = connections.get().await.map_err(Failure::open_error)?;
    let failed = |failure: Failure| {
        let failure = failure.before_statement();
        let retryable = failure.meaning == Meaning::NotApplied;
        OpenError::Connect { source: failure.into(), retryable }
    };
    let row = connections.in_time(client.query_typed_one(SETTINGS, &[])).await.map_err(failed)?;
    let version = connections.in_time(schema::version(&client, &layout)).await.map_err(failed)?;
    let table = layout.with_schema(TABLE);
    let quoted = layout.quoted();
    let names: [(&(dyn ToSql + Sync), Type); 2] = [(&table, Type::TEXT), (&quoted, Type::TEXT)];
    let rights = connections.in_time(client.query_typed_one(RIGHTS, &names)).await;
    let rights = rights.map_err(failed)?;
    let has_policies = match version {
        0 => None,
        _ => {
            let found = schema::has_policies(&client, &layout);
            Some(connections.in_time(found).await.map_err(failed)?)
        }
    };
    let settings = read(&row, options, version, has_policies);
    let settings = settings.and_then(|settings| {
        let can_write: Option<bool> = rights.try_get(0)?;
        let can_write = can_write.unwrap_or(false);
        Ok(ServerSettings { can_write, ..settings })
    });
    settings.map_err(|error| failed(Failure::of_statement(error)))
}

fn read(
    row: &Row,
    options: &PostgresOptions,
    version: i64,
    row_level_security: Option<bool>,
) -> Result<ServerSettings, tokio_postgres::Error> {
    let limit = |column: usize| -> Result<Option<Duration>, tokio_postgres::Error> {
        let milliseconds: Option<i64> = row.try_get(column)?;
        let milliseconds = milliseconds.and_then(|it| u64::try_from(it).ok());
        Ok(milliseconds.filter(|it| *it > 0).map(Duration::from_millis))
    };
    let statement_timeout = limit(6)?;
    Ok(ServerSettings {
        version: row.try_get(0)?,
        version_number: row.try_get(1)?,
        encoding: row.try_get(2)?,
        fsync: row.try_get(3)?,
        full_page_writes: row.try_get(4)?,
        synchronous_commit: row.try_get(5)?,
        statement_timeout,
        has_statement_timeout_of_options: statement_timeout.map(|it| it.as_millis())
            == Some(options.statement_timeout.as_millis()),
        idle_in_transaction_timeout: limit(7)?,
        idle_session_timeout: limit(8)?,
        max_connections: row.try_get(9)?,
        connections: row.try_get(10)?,
        max_connections_of_store: options.connections,
        autovacuum: row.try_get(11)?,
        freeze_age: row.try_get(12)?,
        freeze_max_age: row.try_get(13)?,
        is_read_only: row.try_get(14)?,
        role: row.try_get(15)?,
        role_bypasses_policies: row.try_get(16)?,
        tables_version: (version > 0).then_some(version),
        supported_version: schema::VERSION,
        can_write: false,
        row_level_security,
    })
}
