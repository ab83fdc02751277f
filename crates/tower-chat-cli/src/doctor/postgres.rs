//! Checks a PostgreSQL server.

use std::time::Duration;

use tower_chat_postgres::ServerSettings;

use super::findings::{Findings, Level};

/// Checks the settings of the server and of the tables. Returns whether the tables can be read.
pub(super) fn check(settings: &ServerSettings, findings: &mut Findings) -> bool {
    check_durability(settings, findings);
    check_limits(settings, findings);
    check_role(settings, findings);
    check_tables(settings, findings)
}

fn check_durability(settings: &ServerSettings, findings: &mut Findings) {
    let on = |is_on: bool| if is_on { "on" } else { "off" };
    findings.expect(
        settings.version_number >= 130_000,
        Level::Warning,
        "server",
        format!("PostgreSQL {}", settings.version),
        "use a version that PostgreSQL still supports",
    );
    findings.expect(
        settings.encoding == "UTF8",
        Level::Problem,
        "encoding",
        settings.encoding.as_str(),
        "create the database with ENCODING 'UTF8'",
    );
    findings.expect(
        settings.fsync,
        Level::Problem,
        "fsync",
        on(settings.fsync),
        "set fsync = on: without it a loss of power may damage the database",
    );
    findings.expect(
        settings.full_page_writes,
        Level::Problem,
        "full_page_writes",
        on(settings.full_page_writes),
        "set full_page_writes = on, unless the file system never tears a page",
    );
    findings.expect(
        settings.synchronous_commit != "off",
        Level::Warning,
        "synchronous_commit",
        settings.synchronous_commit.as_str(),
        "set synchronous_commit = on for the role: without it a crash loses writes that were acknowledged",
    );
}

fn check_limits(settings: &ServerSettings, findings: &mut Findings) {
    let limit = |limit: Option<Duration>| {
        limit.map_or("no limit".to_owned(), |limit| format!("{} ms", limit.as_millis()))
    };
    findings.expect(
        settings.has_statement_timeout_of_options,
        Level::Warning,
        "statement_timeout",
        limit(settings.statement_timeout),
        "execute ALTER ROLE ... SET statement_timeout = '30s', and let the pooler ignore the startup parameter: a \
         pooler such as PgBouncer does not forward the statement_timeout that the store sets",
    );
    findings.expect(
        settings.idle_session_timeout.is_none(),
        Level::Warning,
        "idle_session_timeout",
        limit(settings.idle_session_timeout),
        "set it to 0 for the role: connections of a store wait for the next write",
    );
    findings.ok("idle_in_transaction_session_timeout", limit(settings.idle_in_transaction_timeout));
    let pool = i64::try_from(settings.max_connections_of_store).unwrap_or(i64::MAX);
    findings.expect(
        settings.connections.saturating_add(pool) <= settings.max_connections,
        Level::Warning,
        "connections",
        format!(
            "{} of {}; a store makes up to {pool}",
            settings.connections, settings.max_connections
        ),
        "raise max_connections, or limit the connections of each store (with_max_connections)",
    );
    findings.expect(
        settings.autovacuum,
        Level::Problem,
        "autovacuum",
        if settings.autovacuum { "on" } else { "off" },
        "set autovacuum = on: without it the tables grow, and in the end the server accepts no writes",
    );
    findings.expect(
        settings.freeze_age <= settings.freeze_max_age.saturating_mul(2),
        Level::Problem,
        "age of the oldest row",
        format!("{} of {} transactions", settings.freeze_age, settings.freeze_max_age),
        "run VACUUM FREEZE: at 2 billion transactions the server accepts no writes",
    );
    findings.expect(
        !settings.is_read_only,
        Level::Problem,
        "writes",
        if settings.is_read_only { "the server is read-only" } else { "the server accepts writes" },
        "give the address of the primary server, or set default_transaction_read_only = off",
    );
}

fn check_role(settings: &ServerSettings, findings: &mut Findings) {
    let role = &settings.role;
    findings.expect(
        settings.can_write,
        Level::Problem,
        "rights",
        match settings.can_write {
            true => format!("`{role}` may read and write"),
            false => format!("`{role}` may not read and write the tables"),
        },
        "GRANT SELECT, INSERT, UPDATE, DELETE on the tables; if the tables do not exist, GRANT CREATE on the schema",
    );
    match settings.row_level_security {
        Some(true) => findings.expect(
            !settings.role_bypasses_policies,
            Level::Warning,
            "row level security",
            match settings.role_bypasses_policies {
                true => format!("on, and `{role}` bypasses it"),
                false => "on".to_owned(),
            },
            "use a role that is not a superuser and has no BYPASSRLS",
        ),
        Some(false) => findings.ok("row level security", "off"),
        None => {}
    }
}

fn check_tables(settings: &ServerSettings, findings: &mut Findings) -> bool {
    let supported = settings.supported_version;
    match settings.tables_version {
        None => {
            findings.problem("tables", "there are none", "create them with `tower-chat migrate`");
        }
        Some(version) if version == supported => {
            findings.ok("tables", format!("version {version}"));
            return true;
        }
        Some(version) if version < supported => findings.warning(
            "tables",
            format!("version {version} of {supported}"),
            "migrate them with `tower-chat migrate`",
        ),
        Some(version) => findings.problem(
            "tables",
            format!("version {version}, and this release supports versions up to {supported}"),
            "use the newer release that created them",
        ),
    }
    false
}
