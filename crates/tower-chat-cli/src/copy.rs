//! `tower-chat copy`.

use std::process::ExitCode;

use clap::Args;
use tower_chat_transfer::{Event, Operation, Transfer, copy as copy_conversations};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    files::{FileMode, check_written},
    interruption::until_interrupted,
    store::StoreLocation,
    transfer::{Report, ReportOptions, SelectionOptions},
};

#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// The store to copy from
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// The store to copy to, which is created if it is missing
    #[arg(long, value_name = "STORE")]
    to: StoreLocation,
    #[command(flatten)]
    selection: SelectionOptions,
    #[command(flatten)]
    report: ReportOptions,
}

/// Copies conversations from one store to another store.
pub(crate) async fn copy(arguments: CopyArguments) -> Result<ExitCode, CliError> {
    let CopyArguments { store, to, selection, report } = arguments;
    check_written(report.written().as_slice(), &[], &[&store, &to])?;
    let mode = FileMode::of(&store);
    let from = store.open_to_read("copy").await?;
    let selection = selection.selection();
    let transfer =
        Transfer::new(Operation::Copy, selection.clone()).from(store.name()).to(to.name());
    let to = to.open_as_target().await?;
    let mut report = Report::new(&report, transfer, mode)?;
    let rest = match report.last() {
        Some(last) => selection.after(last),
        None => selection,
    };
    let done = {
        let mut progress = |event: &Event| report.record(event);
        let work = copy_conversations(&**from.history(), &**to.history(), &rest, &mut progress);
        until_interrupted(work).await
    };
    let closed = to.close().await;
    match done {
        None => Ok(report.interrupted("the same command continues")),
        Some(receipt) => {
            let code = report.finish(receipt.map_err(CliError::Transfer)?)?;
            closed.map(|()| code)
        }
    }
}
