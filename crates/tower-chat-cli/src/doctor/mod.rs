//! `tower-chat doctor`.

mod conversations;
mod environment;
mod file;
mod findings;
mod postgres;
mod redis;

use std::process::ExitCode;

use clap::Args;

use self::findings::Findings;
use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    output::Lines,
    store::{StoreLocation, postgres_options, redis_options},
};

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print one JSON object per line: {"level", "check", "found", "advice"}
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checks a store, its server and the environment. Changes nothing.
pub(crate) async fn doctor(arguments: DoctorArguments) -> Result<ExitCode, CliError> {
    let mut findings = Findings::default();
    let is_usable = match &arguments.store {
        StoreLocation::Memory => return Err(CliError::Memory { action: "check" }),
        StoreLocation::Sqlite(path) => file::check(path, &mut findings).await?,
        StoreLocation::Postgres { address, schema, prepared_statements } => {
            let options = postgres_options(schema.as_deref(), *prepared_statements);
            postgres::check(&options.server_settings(address).await?, &mut findings)
        }
        StoreLocation::Redis { address, prefix } => {
            let settings = redis_options(prefix.as_deref()).server_settings(address).await;
            redis::check(&settings.map_err(CliError::OpenRedis)?, &mut findings);
            true
        }
    };
    environment::check(&mut findings);
    if is_usable {
        conversations::check(&arguments.store, &mut findings).await;
    }
    let mut lines = Lines::default();
    findings.print(&mut lines, arguments.json);
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::from(u8::from(findings.ask_for_a_change())))
}
