//! `tower-chat vacuum`.

use std::{fs, path::Path, process::ExitCode};

use clap::Args;
use serde::Serialize;
use tower_chat::HistoryStore;

use crate::{
    arguments::STORE_VARIABLE, error::CliError, figures::json_line, output::Lines,
    store::StoreLocation,
};

#[derive(Debug, Args)]
pub(crate) struct VacuumArguments {
    /// The store: sqlite:PATH
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print a JSON object: {"file", "bytes", "bytes_before"}
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Vacuumed {
    file: String,
    bytes: u64,
    bytes_before: u64,
}

/// Rewrites the file of a store, so that the file contains no remains of deleted data.
pub(crate) async fn vacuum(arguments: VacuumArguments) -> Result<ExitCode, CliError> {
    let file = arguments.store.file("vacuum")?;
    let opened = arguments.store.open_to_change("vacuum").await?;
    let store = opened.sqlite("vacuum")?;
    let before = size(file)?;
    store.vacuum().await.map_err(CliError::Vacuum)?;
    store.close().await.map_err(CliError::Close)?;
    let mut lines = Lines::default();
    let (file, bytes, bytes_before) = (file.display().to_string(), size(file)?, before);
    match arguments.json {
        true => lines.write_json(&json_line(&Vacuumed { file, bytes, bytes_before })),
        false => lines.write(&format!("`{file}` has {bytes} bytes, and had {bytes_before} before")),
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}

fn size(file: &Path) -> Result<u64, CliError> {
    let metadata = fs::metadata(file);
    let metadata = metadata.map_err(|source| CliError::Read { file: file.into(), source })?;
    Ok(metadata.len())
}
