//! `tower-chat backup`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Serialize;
use tower_chat_sqlite::Backup;

use crate::{
    arguments::STORE_VARIABLE, error::CliError, figures::json_line, output::Lines,
    store::StoreLocation,
};

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// The store: sqlite:PATH
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// The file to create
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print a JSON object: {"file", "bytes"}
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Written {
    file: String,
    bytes: u64,
}

/// Copies a store to another file.
pub(crate) async fn backup(arguments: BackupArguments) -> Result<ExitCode, CliError> {
    let BackupArguments { store, to, replace, json } = arguments;
    let backup = Backup::of_file(store.file("copy")?).replacing(replace);
    let bytes = backup.write(&to).await.map_err(CliError::from)?;
    let mut lines = Lines::default();
    let file = to.display().to_string();
    match json {
        true => lines.write_json(&json_line(&Written { file, bytes })),
        false => lines.write(&format!("`{file}` has {bytes} bytes")),
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}
