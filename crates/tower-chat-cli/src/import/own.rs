//! Imports files that `export` has written.

use std::{path::PathBuf, process::ExitCode};

use tokio::{fs::File, io::BufReader};
use tower_chat_transfer::{Event, Operation, Transfer, TransferError, import as import_file};

use crate::{
    error::CliError,
    files::{FileMode, NamedFile, check_written},
    interruption::until_interrupted,
    store::StoreLocation,
    transfer::{Report, ReportOptions, SelectionOptions, file_name},
};

/// Imports the conversations of a file that `export --format tower-chat` has written.
pub(super) async fn import(
    file: PathBuf,
    location: StoreLocation,
    selection: SelectionOptions,
    report: ReportOptions,
) -> Result<ExitCode, CliError> {
    let source = NamedFile::new("FILE", &file);
    check_written(report.written().as_slice(), &[source], &[&location])?;
    let opened = File::open(&file).await;
    let opened = opened.map_err(|source| CliError::Read { file: file.clone(), source })?;
    let store = location.open().await?;
    let selection = selection.selection();
    let transfer = Transfer::new(Operation::Import, selection.clone())
        .from(file_name(&file))
        .to(location.name());
    let mut report = Report::new(&report, transfer, FileMode::of(&location))?;
    let rest = match report.last() {
        Some(last) => selection.after(last),
        None => selection,
    };
    let done = {
        let mut progress = |event: &Event| report.record(event);
        let reader = BufReader::new(opened);
        until_interrupted(import_file(&**store.history(), reader, &rest, &mut progress)).await
    };
    let closed = store.close().await;
    let failed = |source| match source {
        TransferError::File(_) | TransferError::Io { .. } => {
            CliError::ImportFile { file: file.clone(), source }
        }
        other => CliError::Transfer(other),
    };
    match done {
        None => Ok(report.interrupted("the same command continues")),
        Some(receipt) => {
            let code = report.finish(receipt.map_err(failed)?)?;
            closed.map(|()| code)
        }
    }
}
