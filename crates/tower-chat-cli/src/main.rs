//! The `tower-chat` command.
//!
//! Exit codes: 0, success; 1, the command has ended, but found problems or skipped some items, such
//! as a conversation that was refused or a run that was in progress; 2, wrong arguments, unreadable
//! files, or a store that cannot be used; 130, interrupted. The help of each command describes its
//! exit codes.

mod age;
mod arguments;
mod backup;
mod chat;
mod completions;
mod copy;
mod delete;
mod doctor;
mod error;
mod export;
mod figures;
mod files;
mod fork;
mod import;
mod interruption;
mod list;
mod migrate;
mod output;
mod prune;
mod recover;
mod repair;
mod report;
mod runs;
mod serve;
mod show;
mod store;
mod time;
mod tools;
mod transfer;
mod usage;
mod vacuum;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use self::{
    arguments::{Arguments, Command},
    error::CliError,
};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            // The message may contain an address with a password, which this function removes.
            output::refuse_arguments(&error.to_string());
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let level = match arguments.command {
        // Warnings are not logged, because the chat itself prints the errors of tools and models.
        Command::Chat(_) => tracing::Level::ERROR,
        _ => tracing::Level::WARN,
    };
    tracing_subscriber::fmt()
        .with_writer(|| output::EscapedStderr)
        .with_ansi(false)
        .with_max_level(level)
        .log_internal_errors(false)
        .without_time()
        .init();
    let done = runtime().and_then(|runtime| runtime.block_on(run(arguments.command)));
    done.unwrap_or_else(|error| {
        output::print_error(&error);
        ExitCode::from(2)
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::Runtime)
}

async fn run(command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Chat(arguments) => chat::chat(*arguments).await,
        Command::List(arguments) => list::list(arguments).await,
        Command::Show(arguments) => show::show(arguments).await,
        Command::Usage(arguments) => usage::usage(arguments).await,
        Command::Export(arguments) => export::export(arguments).await,
        Command::Import(arguments) => import::import(arguments).await,
        Command::Copy(arguments) => copy::copy(arguments).await,
        Command::Delete(arguments) => delete::delete(arguments).await,
        Command::Fork(arguments) => fork::fork(arguments).await,
        Command::Tools(arguments) => tools::tools(arguments).await,
        Command::Verify(arguments) => verify::verify(arguments).await,
        Command::Runs(arguments) => runs::runs(arguments).await,
        Command::Serve(arguments) => serve::serve(arguments).await,
        Command::Recover(arguments) => recover::recover(arguments).await,
        Command::Repair(arguments) => repair::repair(arguments).await,
        Command::Prune(arguments) => prune::prune(arguments).await,
        Command::Backup(arguments) => backup::backup(arguments).await,
        Command::Doctor(arguments) => doctor::doctor(arguments).await,
        Command::Migrate(arguments) => migrate::migrate(arguments).await,
        Command::Vacuum(arguments) => vacuum::vacuum(arguments).await,
        Command::Completions(arguments) => completions::completions(arguments),
    }
}
