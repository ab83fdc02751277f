//! `tower-chat backup`.

use std::process::ExitCode;

use tower_chat_sqlite::Backup;

use crate::{arguments::BackupArguments, error::CliError, output::Lines};

/// Copies a store into another file.
pub(crate) async fn backup(arguments: BackupArguments) -> Result<ExitCode, CliError> {
    let BackupArguments { store, to, replace } = arguments;
    let backup = Backup::of_file(store.file("copy")?).replacing(replace);
    let bytes = backup.write(&to).await.map_err(CliError::from)?;
    let mut lines = Lines::default();
    lines.write(&format!("{bytes} bytes are in `{}`", to.display()));
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}
