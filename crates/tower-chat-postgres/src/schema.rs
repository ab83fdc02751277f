//! The database schema: the tables of the current version, and the migrations of older databases.

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, Error, IsolationLevel, Transaction, types::Type};

use crate::{connections::Connections, directory_migration, failure::Failure, functions};

/// The migrations. The migration with index `n` changes tables of version `n` to version `n + 1`. A
/// released migration must never be changed.
const MIGRATIONS: &[fn(&Layout) -> String] =
    &[first, pruned, partition_policies, unchanged, directory, activity_index, marks];

/// The version of the schema that this release writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The PostgreSQL schema that contains the tables, and the properties of the tables.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The PostgreSQL schema of the tables, without quotes.
    pub(crate) schema: String,
    /// The number of partitions of each table, if the tables are partitioned.
    pub(crate) partitions: Option<u16>,
    /// Whether the server itself isolates scopes.
    pub(crate) row_level_security: bool,
}

impl Layout {
    /// Returns the quoted name of the schema.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// Replaces `{schema}` in a statement with the quoted name of the schema.
    pub(crate) fn with_schema(&self, sql: &str) -> String {
        sql.replace("{schema}", &self.quoted())
    }

    /// Returns the names of a table's partitions.
    fn partitions_of(&self, table: &str) -> impl Iterator<Item = String> {
        (0..self.partitions.unwrap_or_default()).map(move |part| format!("{table}_{part}"))
    }

    /// Returns the number of the advisory lock for migrations of this schema.
    pub(crate) fn lock(&self) -> i64 {
        let digest = Sha256::digest(format!("tower-chat {}", self.schema));
        digest.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
    }
}

/// The tables that the first migration creates, each with its columns. The conversation's key is
/// the first part of every primary key, and no row refers to another conversation. The tables can
/// therefore be partitioned by conversation.
///
/// A write reads only the row of its conversation before it inserts its own rows, because that row
/// contains the last sequence number and, while a run is open, the number of visible messages.
/// Every append updates this row, usually without changing an indexed column. PostgreSQL can then
/// store the new version of the row in the same page (a heap-only tuple). For this reason the index
/// of the directory contains only the hour of the last activity.
pub(crate) const TABLES: &[(&str, &str)] = &[
    (
        "conversations",
        "scope bytea NOT NULL,
        conversation bytea NOT NULL,
        long_scope bytea, -- the whole scope, if the key has only its beginning
        long_conversation bytea,
        incarnation bigint NOT NULL,
        last_sequence bigint NOT NULL, -- staged messages included
        visible bigint, -- the last message that readers see, while a run is open
        service_id bytea,
        PRIMARY KEY (scope, conversation)",
    ),
    (
        "messages",
        "scope bytea NOT NULL,
        conversation bytea NOT NULL,
        sequence bigint NOT NULL,
        run bytea NOT NULL,
        run_index bigint NOT NULL,
        body text NOT NULL, -- JSON
        PRIMARY KEY (scope, conversation, sequence)",
    ),
    (
        "tool_invocations",
        "scope bytea NOT NULL,
        conversation bytea NOT NULL,
        sequence bigint NOT NULL, -- of the message with the call
        call_index bigint NOT NULL,
        round_index bigint NOT NULL,
        call_id bytea NOT NULL,
        name bytea NOT NULL,
        status text NOT NULL,
        result_sequence bigint, -- of the message with the result
        result_index bigint,
        result text, -- JSON, if no message contains it
        error bytea,
        started bigint, -- milliseconds since 1970
        finished bigint,
        PRIMARY KEY (scope, conversation, sequence, call_index)",
    ),
    (
        "open_runs",
        "scope bytea NOT NULL,
        conversation bytea NOT NULL,
        long_conversation bytea,
        run bytea NOT NULL,
        attempt bigint NOT NULL,
        holder bigint NOT NULL,
        opened bigint NOT NULL, -- milliseconds since 1970
        renewed bigint NOT NULL,
        until bigint,
        visible bigint NOT NULL,
        changes_service_id boolean NOT NULL,
        service_id bytea,
        partial_text bytea,
        PRIMARY KEY (scope, conversation)",
    ),
];

/// The table of the usage of runs, since version 5.
pub(crate) const RUN_USAGE: (&str, &str) = (
    "run_usage",
    "scope bytea NOT NULL,
    conversation bytea NOT NULL,
    run bytea NOT NULL,
    model bytea NOT NULL, -- empty if it is unknown
    long_model bytea,
    mode text,
    began bigint NOT NULL, -- milliseconds since 1970
    last bigint NOT NULL,
    service_calls bigint NOT NULL,
    tool_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost_nanos bigint,
    PRIMARY KEY (scope, conversation, run, model)",
);

/// The table of the summaries of conversations, since version 7.
pub(crate) const HISTORY_SUMMARIES: (&str, &str) = (
    "history_summaries",
    "scope bytea NOT NULL,
    conversation bytea NOT NULL,
    covers_to bigint NOT NULL, -- the sequence of the last message that the summary covers
    id bigint NOT NULL,
    body text NOT NULL, -- JSON
    PRIMARY KEY (scope, conversation, covers_to)",
);

/// A partial index, which makes the cost of finding pending approvals independent of the length of
/// the record.
const PENDING_APPROVALS: &str = "
    CREATE INDEX pending_approvals ON {schema}.tool_invocations (scope, conversation, sequence)
    WHERE status = 'pending_approval';";

fn first(layout: &Layout) -> String {
    let mut sql = String::new();
    for (table, columns) in TABLES {
        sql.push_str(&table_sql(layout, table, columns));
        if layout.row_level_security {
            sql.push_str(&policy(&format!("{{schema}}.{table}")));
        }
    }
    sql.push_str(PENDING_APPROVALS);
    sql.push_str(&functions::append());
    sql.push_str(functions::DELETE);
    let name_scope = if layout.row_level_security { functions::NAME_SCOPE } else { "" };
    layout.with_schema(&sql.replace("{name_scope}", name_scope))
}

/// Returns the migration that adds the number of pruned messages (deleted with the oldest runs), by
/// which a reader distinguishes a pruned message from a missing one.
fn pruned(layout: &Layout) -> String {
    let column =
        "ALTER TABLE {schema}.conversations ADD COLUMN pruned bigint NOT NULL DEFAULT 0;\n";
    let name_scope = if layout.row_level_security { functions::NAME_SCOPE } else { "" };
    layout.with_schema(
        &format!("{column}{}", functions::append()).replace("{name_scope}", name_scope),
    )
}

/// Returns an empty migration. In an older release, it added a function that this release does not
/// call.
fn unchanged(_: &Layout) -> String {
    String::new()
}

/// Returns the migration that adds the directory of conversations and their runs.
fn directory(layout: &Layout) -> String {
    let (table, columns) = RUN_USAGE;
    let mut sql = directory_migration::columns();
    sql.push_str(&table_sql(layout, table, columns));
    sql.push_str(&directory_migration::fill(layout));
    if layout.row_level_security {
        sql.push_str(&policies(layout, table));
        sql.push_str(&directory_migration::policies());
    }
    let name_scope = if layout.row_level_security { functions::NAME_SCOPE } else { "" };
    for function in [&functions::append(), functions::DELETE, functions::DESCRIBE] {
        sql.push_str(&function.replace("{name_scope}", name_scope));
    }
    layout.with_schema(&sql)
}

/// Returns the migration that replaces the index of conversations by activity with a partial index.
/// The planner may choose the full index instead of the primary key to find a conversation, if it
/// assumes that each scope has one conversation. The server then scans all conversations of a large
/// scope. The condition of the partial index is true for every row, and the planner uses the index
/// only for queries that contain the same condition.
fn activity_index(layout: &Layout) -> String {
    layout.with_schema(
        "DROP INDEX {schema}.conversations_by_activity;
         CREATE INDEX conversations_by_activity ON {schema}.conversations (scope, active_hour)
         WHERE active_hour IS NOT NULL;",
    )
}

/// Returns the migration that adds a table with one row, which records whether the store contains
/// sealed (encrypted) data. The migration searches the existing data for sealed data. Also adds the
/// parents of branches, the summaries of conversations, and the part of a conversation that the
/// next run needs to load.
///
/// Policies also apply to the owner of the tables. Therefore the migration disables them
/// temporarily.
///
/// The function `append` is replaced: it now records the arrival of a run's first request as the
/// start of the run, instead of the time of the first write.
fn marks(layout: &Layout) -> String {
    let force = |word: &str| {
        if !layout.row_level_security {
            return String::new();
        }
        let alter = |table| format!("ALTER TABLE {{schema}}.{table} {word} ROW LEVEL SECURITY;\n");
        ["conversations", "messages"].map(alter).concat()
    };
    let sql = "ALTER TABLE {schema}.conversations
            ADD COLUMN parent_scope bytea, -- of the original, if the conversation is a branch
            ADD COLUMN parent_conversation bytea,
            ADD COLUMN parent_position bigint,
            ADD COLUMN parent_key bytea, -- SHA-256 of the parent's scope and id, for the index
            -- The number of rewrites that changed messages.
            ADD COLUMN rewrites bigint NOT NULL DEFAULT 0,
            -- The part of the conversation that the next run needs to load, in JSON.
            ADD COLUMN load_from text;
        CREATE INDEX branches ON {schema}.conversations (scope, parent_key)
        WHERE parent_key IS NOT NULL;
        CREATE TABLE {schema}.store_marks (holds_sealed boolean NOT NULL);
        INSERT INTO {schema}.store_marks SELECT EXISTS (
            SELECT 1 FROM {schema}.conversations AS c
            WHERE substring(c.service_id FROM 1 FOR 11) = 'tower-chat-'::bytea
        ) OR EXISTS (
            SELECT 1 FROM {schema}.messages AS m
            WHERE m.body LIKE '%{\"wire\":\"tower-chat-encrypted\",%'
        );\n";
    let name_scope = if layout.row_level_security { functions::NAME_SCOPE } else { "" };
    let (table, columns) = HISTORY_SUMMARIES;
    let mut summaries = table_sql(layout, table, columns);
    if layout.row_level_security {
        summaries.push_str(&policies(layout, table));
    }
    let append = functions::append();
    let functions =
        [&append, functions::DELETE, functions::ADD_SUMMARY, functions::REMOVE_SUMMARY].concat();
    let functions = functions.replace("{name_scope}", name_scope);
    let marks = [force("NO FORCE").as_str(), sql, &force("FORCE")].concat();
    layout.with_schema(&[marks, summaries, functions].concat())
}

/// Returns the migration that adds policies to the partitions, because the policy of a table does
/// not apply to a query that names one of its partitions. The function `append` is replaced,
/// because the function of an older release may lack the statement that sets the scope.
fn partition_policies(layout: &Layout) -> String {
    if !layout.row_level_security {
        return String::new();
    }
    let sql = format!(
        "DO $partitions$
         DECLARE
             v_partition regclass;
         BEGIN
             FOR v_partition IN
                 SELECT p.oid FROM pg_inherits AS i
                 JOIN pg_class AS t ON t.oid = i.inhparent
                 JOIN pg_namespace AS n ON n.oid = t.relnamespace
                 JOIN pg_class AS p ON p.oid = i.inhrelid
                 WHERE n.nspname = '{schema}' AND t.relrowsecurity
                     AND p.relkind = 'r' AND NOT p.relrowsecurity
             LOOP
                 EXECUTE format($policy$ {policy} $policy$, v_partition);
             END LOOP;
         END
         $partitions$;
         {append}",
        schema = layout.schema.replace('\'', "''"),
        policy = policy("%1$s"),
        append = functions::append().replace("{name_scope}", functions::NAME_SCOPE),
    );
    layout.with_schema(&sql)
}

fn table_sql(layout: &Layout, table: &str, columns: &str) -> String {
    // The fill factor leaves space in each page for new versions of its rows.
    let storage = match table {
        "conversations" | "open_runs" | "run_usage" => " WITH (fillfactor = 70)",
        _ => "",
    };
    let Some(partitions) = layout.partitions else {
        return format!("CREATE TABLE {{schema}}.{table} ({columns}){storage};\n");
    };
    let mut sql = format!(
        "CREATE TABLE {{schema}}.{table} ({columns}) PARTITION BY HASH (scope, conversation);\n"
    );
    for part in 0..partitions {
        sql.push_str(&format!(
            "CREATE TABLE {{schema}}.{table}_{part} PARTITION OF {{schema}}.{table}
             FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part}){storage};\n"
        ));
    }
    sql
}

/// Returns the statements that add a policy to a table and to each of its partitions.
fn policies(layout: &Layout, table: &str) -> String {
    let tables = [table.to_owned()].into_iter().chain(layout.partitions_of(table));
    tables.map(|table| policy(&format!("{{schema}}.{table}"))).collect()
}

/// Returns the statements that add a policy to a table, also for its owner. A transaction sees only
/// rows of the scope in its setting `tower_chat.scope`, and no rows if this setting is missing.
fn policy(table: &str) -> String {
    format!(
        "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
         ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
         CREATE POLICY one_scope ON {table} USING (
             scope = nullif(current_setting('tower_chat.scope', true), '')::bytea
         );\n"
    )
}

/// Returns the statements of all migrations.
#[cfg(test)]
pub(crate) fn all(layout: &Layout) -> String {
    MIGRATIONS.iter().map(|step| step(layout)).collect()
}

/// The result of a check of the schema's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The tables have the version of this release.
    Current,
    /// The tables have the version of a newer release.
    Newer { version: i64 },
    /// The tables have the version of an older release, and the options do not allow a migration.
    /// The version is 0 if there are no tables.
    Older { version: i64 },
}

/// Creates the tables, or migrates the tables of an older release, if `is_allowed` is true. If the
/// tables have the current version, this function needs no permission to create objects, and waits
/// for no lock.
pub(crate) async fn migrate(
    connections: &Connections,
    client: &mut Client,
    layout: &Layout,
    is_allowed: bool,
) -> Result<Found, Failure> {
    let version = connections.in_time(version(client, layout)).await?;
    if version >= VERSION {
        return Ok(found(version));
    }
    if !is_allowed {
        return Ok(Found::Older { version });
    }
    bring_up_to_date(client, layout).await.map_err(Failure::of_statement)
}

/// Begins a transaction that may change the tables of a schema, and creates the schema if it does
/// not exist. An advisory lock lets one process at a time change the tables. The statements of the
/// transaction have no timeout, and neither has the wait for the lock.
async fn locked<'a>(client: &'a mut Client, layout: &Layout) -> Result<Transaction<'a>, Error> {
    // With READ COMMITTED, later statements see the commits of processes that had the lock before.
    let builder = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let transaction = builder.start().await?;
    transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
    let lock = [(&layout.lock() as _, Type::INT8)];
    transaction.query_typed("SELECT pg_advisory_xact_lock($1)", &lock).await?;
    // `CREATE SCHEMA IF NOT EXISTS` needs the right to create schemas even if the schema exists.
    let sql = "SELECT to_regnamespace($1) IS NULL";
    if transaction.query_typed_one(sql, &[(&layout.quoted(), Type::TEXT)]).await?.try_get(0)? {
        transaction.batch_execute(&layout.with_schema("CREATE SCHEMA {schema}")).await?;
    }
    Ok(transaction)
}

/// Executes `sql` if `table` does not exist and `is_allowed` is true. Returns whether the table
/// exists afterwards.
#[cfg(feature = "delivery")]
pub(crate) async fn create(
    client: &mut Client,
    layout: &Layout,
    (table, sql): (&str, &str),
    is_allowed: bool,
) -> Result<bool, Error> {
    let exists = "SELECT to_regclass($1) IS NOT NULL";
    let table = layout.with_schema(table);
    let found = client.query_typed_one(exists, &[(&table, Type::TEXT)]).await?.try_get(0)?;
    if found || !is_allowed {
        return Ok(found);
    }
    let transaction = locked(client, layout).await?;
    transaction.batch_execute(&layout.with_schema(sql)).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Executes the missing migrations in one transaction.
async fn bring_up_to_date(client: &mut Client, layout: &Layout) -> Result<Found, Error> {
    let transaction = locked(client, layout).await?;
    transaction
        .batch_execute(&layout.with_schema(
            "CREATE TABLE IF NOT EXISTS {schema}.schema_version (version bigint NOT NULL)",
        ))
        .await?;
    let version = version_in(transaction.client(), layout).await?;
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    let missing = MIGRATIONS.get(done..).unwrap_or_default();
    if missing.is_empty() {
        return Ok(found(version));
    }
    let mut layout = layout.clone();
    if version > 0 {
        // The properties of the existing tables are used instead of the options of this process.
        layout.row_level_security = has_policies(transaction.client(), &layout).await?;
        layout.partitions = partitions(transaction.client(), &layout).await?;
    }
    for step in missing {
        transaction.batch_execute(&step(&layout)).await?;
    }
    transaction
        .batch_execute(&layout.with_schema(&format!(
            "DELETE FROM {{schema}}.schema_version;
             INSERT INTO {{schema}}.schema_version VALUES ({VERSION})"
        )))
        .await?;
    transaction.commit().await?;
    Ok(Found::Current)
}

/// Returns whether the existing tables have policies.
pub(crate) async fn has_policies(client: &Client, layout: &Layout) -> Result<bool, Error> {
    let sql = "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass($1)";
    let table = layout.with_schema("{schema}.conversations");
    let row = client.query_typed_one(sql, &[(&table, Type::TEXT)]).await?;
    row.try_get(0)
}

/// Returns the number of partitions of the existing tables.
async fn partitions(client: &Client, layout: &Layout) -> Result<Option<u16>, Error> {
    let sql = "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass($1)";
    let table = layout.with_schema("{schema}.conversations");
    let row = client.query_typed_one(sql, &[(&table, Type::TEXT)]).await?;
    let found: i64 = row.try_get(0)?;
    Ok(u16::try_from(found).ok().filter(|found| *found > 0))
}

fn found(version: i64) -> Found {
    if version > VERSION { Found::Newer { version } } else { Found::Current }
}

/// Returns the version of the schema; 0 if there is none.
pub(crate) async fn version(client: &Client, layout: &Layout) -> Result<i64, Error> {
    let table = layout.with_schema("{schema}.schema_version");
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    let row = client.query_typed_one(sql, &[(&table, Type::TEXT)]).await?;
    if row.get(0) { version_in(client, layout).await } else { Ok(0) }
}

async fn version_in(client: &Client, layout: &Layout) -> Result<i64, Error> {
    let sql = layout.with_schema("SELECT coalesce(max(version), 0) FROM {schema}.schema_version");
    Ok(client.query_typed_one(&sql, &[]).await?.get(0))
}
