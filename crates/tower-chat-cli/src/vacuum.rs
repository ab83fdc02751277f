//! `tower-chat vacuum`.

use std::{fs, path::Path, process::ExitCode};

use tower_chat::store::HistoryStore;

use crate::{arguments::VacuumArguments, error::CliError, output::Lines};

/// Writes a store's file anew, without what is left of what was deleted.
pub(crate) async fn vacuum(arguments: VacuumArguments) -> Result<ExitCode, CliError> {
    let file = arguments.store.file("vacuum")?;
    let opened = arguments.store.open_to_change("vacuum").await?;
    let store = opened.sqlite("vacuum")?;
    let before = size(file)?;
    store.vacuum().await.map_err(CliError::Vacuum)?;
    store.close().await.map_err(CliError::Close)?;
    let mut lines = Lines::default();
    lines.write(&format!("{} bytes are in `{}`, of {before}", size(file)?, file.display()));
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}

fn size(file: &Path) -> Result<u64, CliError> {
    let metadata = fs::metadata(file);
    let metadata = metadata.map_err(|source| CliError::Read { file: file.into(), source })?;
    Ok(metadata.len())
}
