//! The work of a process that the campaign kills.

use std::{io::SeekFrom, path::Path};

use tokio::io::{AsyncSeekExt, BufReader};
use tower_chat::{BoxError, HistoryStore, store::Directory};
use tower_chat_sqlite::SqliteStore;
use tower_chat_transfer::{
    Event, ExportContents, ExportFile, Operation as Transferred, ReceiptLog, Selection, Transfer,
    copy, delete_scope, export, import,
};

use super::{Operation, Plant, WorkerArguments, cannot, file, receipt, source, target};
use crate::Failure;

pub(super) const SCOPE: &str = "alice";

/// Executes the operation of a process, which kills itself at the event in the arguments.
///
/// # Errors
///
/// [`Failure::CannotRun`] if the operation fails.
pub fn work(arguments: &WorkerArguments) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| cannot("start tokio", error))?;
    runtime.block_on(transfer(arguments)).map_err(|error| cannot("transfer", error))
}

async fn transfer(arguments: &WorkerArguments) -> Result<(), BoxError> {
    let folder = &arguments.folder;
    match arguments.operation {
        Operation::Export => export_to_file(arguments, folder).await,
        Operation::Import => {
            let to = SqliteStore::open(target(folder)).await?;
            let mut log = open_log(folder, Transferred::Import, Selection::everything())?;
            let rest = rest(&log, arguments);
            let reader = BufReader::new(tokio::fs::File::open(file(folder)).await?);
            let mut events = Events::of(arguments);
            let done =
                import(&to, reader, &rest, &mut |event| events.record(&mut log, event)).await?;
            log.complete_with(done.sha256)?;
            Ok(to.close().await?)
        }
        Operation::Copy => {
            let from = SqliteStore::open(source(folder)).await?;
            let to = SqliteStore::open(target(folder)).await?;
            let mut log = open_log(folder, Transferred::Copy, Selection::everything())?;
            let rest = rest(&log, arguments);
            let mut events = Events::of(arguments);
            copy(&from, &to, &rest, &mut |event| events.record(&mut log, event)).await?;
            log.complete()?;
            from.close().await?;
            Ok(to.close().await?)
        }
        Operation::Delete => {
            let from = SqliteStore::open(source(folder)).await?;
            let mut log = open_log(folder, Transferred::Delete, Selection::scope(SCOPE))?;
            if arguments.plant != Some(Plant::UnsettledReceipt)
                && let Some(begun) = log.begun().cloned()
                && from.summary(&begun).await?.is_none()
            {
                log.was_deleted()?;
            }
            let mut events = Events::of(arguments);
            delete_scope(&from, SCOPE, &mut |event| events.record(&mut log, event)).await?;
            log.complete()?;
            Ok(from.close().await?)
        }
        Operation::Migrate => Ok(SqliteStore::open(target(folder)).await?.close().await?),
    }
}

async fn export_to_file(arguments: &WorkerArguments, folder: &Path) -> Result<(), BoxError> {
    let from = SqliteStore::open(source(folder)).await?;
    let mut options = tokio::fs::OpenOptions::new();
    options.read(true).write(true).create(true);
    let mut written = options.open(file(folder)).await?;
    let mut log = open_log(folder, Transferred::Export, Selection::everything())?;
    let mut rest = Selection::everything();
    let mut contents = None;
    if written.metadata().await?.len() > 0 {
        let read = ExportContents::read(BufReader::new(&mut written)).await;
        // A file with an incomplete first line is not yet an export. The export begins again.
        let Ok(read) = read else {
            written.set_len(0).await?;
            written.seek(SeekFrom::Start(0)).await?;
            return finish_export(&from, arguments, written, None, (rest, log)).await;
        };
        if read.is_complete() {
            if log.last().is_some() {
                log.complete_with(Some(read.sha256()))?;
            }
            return Ok(());
        }
        written.set_len(read.whole_bytes()).await?;
        written.seek(SeekFrom::End(0)).await?;
        if let Some(step) = read.last_step() {
            if log.begun() == Some(&step.key()) {
                log.record(&Event::Done(step.clone()))?;
            }
            if arguments.plant != Some(Plant::RepeatedConversation) {
                rest = rest.after(step.key());
            }
        }
        contents = Some(read);
    }
    finish_export(&from, arguments, written, contents, (rest, log)).await
}

async fn finish_export(
    from: &SqliteStore,
    arguments: &WorkerArguments,
    mut written: tokio::fs::File,
    contents: Option<ExportContents>,
    (rest, mut log): (Selection, ReceiptLog),
) -> Result<(), BoxError> {
    let export_file = match &contents {
        Some(contents) => ExportFile::resume(&mut written, contents),
        None => ExportFile::new(&mut written),
    };
    let mut events = Events::of(arguments);
    let done =
        export(from, &rest, export_file, &mut |event| events.record(&mut log, event)).await?;
    written.sync_all().await?;
    log.complete_with(done.sha256)?;
    Ok(from.close().await?)
}

fn open_log(
    folder: &Path,
    operation: Transferred,
    selection: Selection,
) -> Result<ReceiptLog, BoxError> {
    Ok(ReceiptLog::open(&receipt(folder), Transfer::new(operation, selection))?)
}

fn rest(log: &ReceiptLog, arguments: &WorkerArguments) -> Selection {
    let after = match arguments.plant {
        Some(Plant::SkippedConversation) => log.begun().or(log.last()),
        _ => log.last(),
    };
    after.map_or(Selection::everything(), |key| Selection::everything().after(key.clone()))
}

/// Counts the events of a transfer, and aborts the process at the selected event.
struct Events {
    count: u64,
    dies_at: Option<u64>,
    is_recorded: bool,
}

impl Events {
    fn of(arguments: &WorkerArguments) -> Self {
        Self { count: 0, dies_at: arguments.dies_at, is_recorded: arguments.is_recorded }
    }

    fn record(&mut self, log: &mut ReceiptLog, event: &Event) -> Result<(), BoxError> {
        self.count += 1;
        let dies = self.dies_at == Some(self.count);
        if dies && !self.is_recorded {
            std::process::abort();
        }
        log.record(event)?;
        if dies {
            std::process::abort();
        }
        Ok(())
    }
}
