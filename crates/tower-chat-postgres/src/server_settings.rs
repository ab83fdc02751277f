//! The settings of a server, for diagnostics.

use std::time::Duration;

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{
    OpenError, PostgresOptions,
    failure::Failure,
    schema,
    server_statements::{RIGHTS, SETTINGS, TABLE},
    store,
};

/// The settings of the server, the role and the tables that affect a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The version of the server, such as `17.6`.
    pub version: String,
    /// The version as a number, such as 170006.
    pub version_number: i32,
    /// The encoding of the database.
    pub encoding: String,
    /// Whether the server syncs its writes to the disk. If this is false, a power loss may damage
    /// the database.
    pub fsync: bool,
    /// Whether the server can repair pages that were only partly written when the power was lost.
    pub full_page_writes: bool,
    /// The setting `synchronous_commit`.
    pub synchronous_commit: String,
    /// The statement timeout on the connections of the store; `None` if there is no limit.
    pub statement_timeout: Option<Duration>,
    /// Whether [`statement_timeout`](Self::statement_timeout) equals the timeout in the options. If
    /// this is false, a pooler such as PgBouncer has not forwarded the startup parameters.
    pub has_statement_timeout_of_options: bool,
    /// The timeout of idle transactions; `None` if there is no limit.
    pub idle_in_transaction_timeout: Option<Duration>,
    /// The timeout of idle connections; `None` if there is no limit.
    pub idle_session_timeout: Option<Duration>,
    /// The maximum number of connections of all roles without special privileges.
    pub max_connections: i64,
    /// The current number of connections that the role of the store may see.
    pub connections: i64,
    /// The maximum number of connections of a store with these options.
    pub max_connections_of_store: usize,
    /// Whether the server removes dead rows automatically.
    pub autovacuum: bool,
    /// The age of the oldest transaction id in the database (`datfrozenxid`), in transactions.
    pub freeze_age: i64,
    /// The age at which the server begins to freeze old rows even if autovacuum is disabled
    /// (`autovacuum_freeze_max_age`).
    pub freeze_max_age: i64,
    /// Whether the server refuses writes, because it is a replica or for another reason.
    pub is_read_only: bool,
    /// The role of the store.
    pub role: String,
    /// Whether policies of tables do not apply to the role, because it is a superuser or has
    /// `BYPASSRLS`.
    pub role_bypasses_policies: bool,
    /// The version of the tables; `None` if there are none.
    pub tables_version: Option<i64>,
    /// The version of the tables that this release writes.
    pub supported_version: i64,
    /// Whether the role may read and write the tables, or create them if they are missing.
    pub can_write: bool,
    /// Whether the server itself isolates scopes; `None` if there are no tables.
    pub row_level_security: Option<bool>,
}

/// Queries the settings of the server at an address.
pub(crate) async fn ask(
    address: &str,
    options: &PostgresOptions,
) -> Result<ServerSettings, OpenError> {
    let (connections, layout) = store::connections(address, options)?;
    let client = connections.get().await.map_err(Failure::open_error)?;
    let failed = |failure: Failure| {
        let source = failure.before_statement().classified();
        OpenError::Connect { source }
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
