//! The statements that query the settings of a server. These statements read no data of
//! conversations.

/// The table whose permissions [`RIGHTS`] checks.
pub(crate) const TABLE: &str = "{schema}.conversations";

/// The settings of the server. A subquery of `pg_settings` returns null if the server is too old
/// for a setting.
pub(crate) const SETTINGS: &str = "
    SELECT current_setting('server_version'), current_setting('server_version_num')::int4,
        current_setting('server_encoding'),
        current_setting('fsync')::bool, current_setting('full_page_writes')::bool,
        current_setting('synchronous_commit'),
        (SELECT setting::int8 FROM pg_settings WHERE name = 'statement_timeout'),
        (SELECT setting::int8 FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'),
        (SELECT setting::int8 FROM pg_settings WHERE name = 'idle_session_timeout'),
        current_setting('max_connections')::int8
            - current_setting('superuser_reserved_connections')::int8,
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
        current_setting('autovacuum')::bool,
        (SELECT age(datfrozenxid)::int8 FROM pg_database WHERE datname = current_database()),
        current_setting('autovacuum_freeze_max_age')::int8,
        pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool,
        current_user::text,
        (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user)";

/// The permissions of the role for the tables. If the tables are missing, these are the permissions
/// to create them: in the schema, or in the database if the schema is missing too.
pub(crate) const RIGHTS: &str = "
    SELECT CASE
        WHEN to_regclass($1) IS NOT NULL THEN (
            SELECT bool_and(has_table_privilege(t.oid, p.privilege))
            FROM pg_class AS t, (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS p (privilege)
            WHERE t.relnamespace = to_regnamespace($2) AND t.relkind IN ('r', 'p')
                AND t.relname IN ('conversations', 'messages', 'tool_invocations', 'open_runs', 'run_usage',
                    'history_summaries')
        )
        WHEN to_regnamespace($2) IS NOT NULL THEN
            has_schema_privilege(to_regnamespace($2)::oid, 'CREATE')
        ELSE has_database_privilege(current_database(), 'CREATE')
    END";
