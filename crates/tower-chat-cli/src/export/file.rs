//! Implements `export --format tower-chat`: writes all stored data to a file that `import` can
//! read.
//!
//! The *receipt* is a file with a line for each finished conversation. If the command is repeated
//! after an interruption, the new attempt continues the receipt.

use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    path::Path,
    process::ExitCode,
};

use tokio::{
    fs::File,
    io::{AsyncSeekExt, AsyncWrite, BufReader},
};
use tower_chat_transfer::{
    Event, ExportContents, ExportFile, Operation, Receipt, Selection, Transfer, TransferError,
    export as export_conversations,
};

use super::{ExportArguments, create};
use crate::{
    error::CliError,
    files::{FileMode, NamedFile, check_written},
    interruption::until_interrupted,
    store::OpenedStore,
    transfer::{Report, file_name},
};

pub(super) async fn export(arguments: ExportArguments) -> Result<ExitCode, CliError> {
    let to = arguments.to.as_deref().map(|path| NamedFile::new("--to", path));
    let written: Vec<_> = to.into_iter().chain(arguments.report.written()).collect();
    check_written(&written, &[], &[&arguments.store])?;
    let mode = FileMode::of(&arguments.store);
    let store = arguments.store.open_to_read("export").await?;
    let selection = arguments.selection.selection();
    let mut transfer =
        Transfer::new(Operation::Export, selection.clone()).from(arguments.store.name());
    let Some(path) = arguments.to else {
        let mut report = Report::new(&arguments.report, transfer, mode)?.aside();
        let file = ExportFile::new(tokio::io::stdout());
        let done = write(&store, &selection, file, &mut report).await;
        return match done {
            Some(Err(TransferError::Io { source, .. }))
                if source.kind() == ErrorKind::BrokenPipe =>
            {
                Ok(ExitCode::SUCCESS)
            }
            Some(receipt) => report.finish(receipt.map_err(CliError::Transfer)?),
            None => Ok(report.interrupted("export to a file, with --to, to be able to continue")),
        };
    };
    transfer = transfer.to(file_name(&path));
    let (mut file, contents) = open(&path, arguments.resume, mode).await?;
    let mut report = Report::new(&arguments.report, transfer, mode).inspect_err(|_| {
        // Without `--resume`, this attempt has created the file, which is still empty.
        if !arguments.resume {
            drop(fs::remove_file(&path));
        }
    })?;
    let mut rest = selection;
    if let Some(step) = contents.as_ref().and_then(ExportContents::last_step) {
        // An earlier attempt may have written the last conversation to the file, but not recorded
        // its end in the receipt.
        if let Some(log) = report.log().filter(|log| log.begun() == Some(&step.key())) {
            log.record(&Event::Done(step.clone())).map_err(CliError::Output)?;
        }
        rest = rest.after(step.key());
    }
    let export_file = match &contents {
        Some(contents) => ExportFile::resume(&mut file, contents),
        None => ExportFile::new(&mut file),
    };
    match write(&store, &rest, export_file, &mut report).await {
        Some(receipt) => {
            let receipt = receipt.map_err(CliError::Transfer)?;
            let synced = file.sync_all().await;
            synced.map_err(|source| CliError::Write { file: path, source })?;
            report.finish(receipt)
        }
        None => Ok(report.interrupted("continue with the same command and --resume")),
    }
}

async fn write<W: AsyncWrite + Unpin + Send>(
    store: &OpenedStore,
    selection: &Selection,
    file: ExportFile<W>,
    report: &mut Report,
) -> Option<Result<Receipt, TransferError>> {
    let mut progress = |event: &Event| report.record(event);
    until_interrupted(export_conversations(&**store.history(), selection, file, &mut progress))
        .await
}

/// Creates a new file, or opens the file of an interrupted export and truncates it after the last
/// complete conversation. Returns the file, whose position is at its end, and the contents that
/// were read from it.
async fn open(
    path: &Path,
    resume: bool,
    mode: FileMode,
) -> Result<(File, Option<ExportContents>), CliError> {
    if !resume {
        return Ok((File::from_std(create(path, mode)?), None));
    }
    let written = |source| CliError::Write { file: path.to_owned(), source };
    let found = OpenOptions::new().read(true).write(true).open(path);
    let found = match found {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok((File::from_std(create(path, mode)?), None));
        }
        found => found.map_err(written)?,
    };
    let mut file = File::from_std(found);
    let torn = |source| CliError::Resume { file: path.to_owned(), source };
    let length = file.metadata().await.map_err(written)?.len();
    if length == 0 {
        return Ok((file, None));
    }
    let contents = ExportContents::read(BufReader::new(&mut file)).await.map_err(torn)?;
    if contents.is_complete() {
        return Err(CliError::ExportComplete { path: path.to_owned() });
    }
    file.set_len(contents.whole_bytes()).await.map_err(written)?;
    file.seek(std::io::SeekFrom::Start(contents.whole_bytes())).await.map_err(written)?;
    Ok((file, Some(contents)))
}
