//! `tower-chat migrate`.

use std::{path::Path, process::ExitCode};

use clap::Args;
use serde::Serialize;
use tower_chat_postgres::{OpenError as PostgresError, PostgresOptions};
use tower_chat_sqlite::{OpenError, SqliteStore};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::json_line,
    output::Lines,
    store::{StoreLocation, postgres_options},
};

#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print the migration that would be made, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print a JSON object: {"migration": "none", "needed" or "tables", "from", "to", "done"};
    /// "from" and "to" are versions for "needed", and null otherwise
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Migrated {
    migration: &'static str,
    from: Option<i64>,
    to: Option<i64>,
    done: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Migration {
    /// The store needs no migration, for this reason.
    None(String),
    /// The store must be migrated from one version to another.
    Needed { what: String, from: i64, to: i64 },
    /// The tables do not exist and must be created.
    Making { what: String },
}

impl Migration {
    fn to_json(&self, done: bool) -> Migrated {
        match self {
            Self::None(_) => Migrated { migration: "none", from: None, to: None, done },
            Self::Needed { from, to, .. } => {
                Migrated { migration: "needed", from: Some(*from), to: Some(*to), done }
            }
            Self::Making { .. } => Migrated { migration: "tables", from: None, to: None, done },
        }
    }
}

pub(crate) async fn migrate(arguments: MigrateArguments) -> Result<ExitCode, CliError> {
    let migration = find(&arguments.store).await?;
    let is_needed = !matches!(migration, Migration::None(_));
    let is_done = is_needed && !arguments.dry_run;
    if is_done {
        arguments.store.open_to_change("migrate").await?.close().await?;
    }
    let mut lines = Lines::default();
    if arguments.json {
        lines.write_json(&json_line(&migration.to_json(is_done)));
        lines.finish().map_err(CliError::Output)?;
        return Ok(ExitCode::from(u8::from(is_needed && arguments.dry_run)));
    }
    lines.write(&match migration {
        Migration::None(why) => why,
        Migration::Needed { what, from, to } if is_done => {
            format!("{what}: migrated from version {from} to version {to}")
        }
        Migration::Needed { what, from, to } => {
            format!("{what}: version {from}, to be migrated to version {to}")
        }
        Migration::Making { what } if is_done => format!("{what}: the tables were created"),
        Migration::Making { what } => format!("{what}: there are no tables: they would be created"),
    });
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::from(u8::from(is_needed && arguments.dry_run)))
}

/// Determines which migration the store needs. Does not change the store.
async fn find(location: &StoreLocation) -> Result<Migration, CliError> {
    match location {
        StoreLocation::Memory => Err(CliError::Memory { action: "migrate" }),
        StoreLocation::Sqlite(path) => find_in_file(path).await,
        StoreLocation::Postgres { address, schema, prepared_statements } => {
            let options = postgres_options(schema.as_deref(), *prepared_statements);
            find_in_tables(address, options).await
        }
        StoreLocation::Redis { .. } => {
            location.open_to_read("migrate").await?;
            let why = "a store in Redis has no tables, and every release can read it";
            Ok(Migration::None(why.to_owned()))
        }
    }
}

async fn find_in_file(path: &Path) -> Result<Migration, CliError> {
    let what = format!("`{}`", path.display());
    let options = SqliteStore::options().with_create(false).with_read_only(true);
    match options.open(path).await {
        Ok(_) => Ok(Migration::None(format!("{what} is up to date"))),
        Err(OpenError::Older { version: from, supported: to, .. }) => {
            Ok(Migration::Needed { what, from, to })
        }
        Err(error) => Err(error.into()),
    }
}

async fn find_in_tables(address: &str, options: PostgresOptions) -> Result<Migration, CliError> {
    let what = |schema: &str| format!("schema `{schema}`");
    match options.with_migration(false).connect(address).await {
        Ok(_) => Ok(Migration::None("the tables are up to date".to_owned())),
        Err(PostgresError::Older { schema, version: from, supported: to }) => {
            Ok(Migration::Needed { what: what(&schema), from, to })
        }
        Err(PostgresError::NoTables { schema }) => Ok(Migration::Making { what: what(&schema) }),
        Err(error) => Err(error.into()),
    }
}
