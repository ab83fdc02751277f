//! Two processes run requests in hundreds of conversations for a long time, in all persistence
//! modes. Meanwhile callers drop responses, stores are closed and reopened, one of the processes is
//! killed repeatedly, old runs are pruned, and backups are made and opened.
//!
//! This process is the supervisor, which decides each step. It has a model of every conversation,
//! and compares the store with the models between the runs and at the end.
//!
//! It measures memory and open files of both processes, the length of the store's log and queue,
//! and the duration of appends, and prints them for each tenth of the time. Memory, open files and
//! the log must not grow by more than the bounds in `growth.rs`. The other values depend on the
//! machine.

mod backups;
mod child;
mod growth;
mod metrics;
mod protocol;
mod samples;
mod schedule;
mod store;
mod supervisor;
mod worker;

use std::{env, path::PathBuf};

use clap::ValueEnum;

pub use self::worker::WorkerArguments;
use crate::{Failure, Figures};

/// Runs two processes on one store for a long time, measures the processes, and compares the store
/// with a model
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The length of the campaign in seconds
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// The number of conversations
    #[arg(long, default_value_t = 500)]
    pub conversations: u32,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The store that the processes share
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    pub store: StoreKind,
    /// A planted fault, which must be found
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The program of the processes; by default this program
    #[arg(long, hide = true)]
    pub program: Option<PathBuf>,
}

/// A store, with its server if it needs one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// One file
    Sqlite,
    /// A throwaway server
    Postgres,
    /// A throwaway server
    Redis,
}

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Stores are forgotten instead of closed
    Leak,
    /// Runs are acknowledged without being stored
    LostWrite,
    /// The last call of a stored run has no result
    DanglingCall,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`] if a conversation differs from its model, or if memory, open files or the log
/// grow. [`Failure::CannotRun`] if a process or a server does not start.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => env::current_exe().map_err(|source| Failure::CannotRun {
            what: "find its own program".to_owned(),
            source: Some(source.into()),
        })?,
    };
    runtime()?.block_on(supervisor::supervise(&arguments, program))
}

/// Runs one of the two processes.
///
/// # Errors
///
/// [`Failure::CannotRun`] if the store cannot be opened.
pub fn work(arguments: WorkerArguments) -> Result<Figures, Failure> {
    runtime()?.block_on(worker::work(arguments))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|source| Failure::CannotRun {
        what: "start a runtime".to_owned(),
        source: Some(source.into()),
    })
}
