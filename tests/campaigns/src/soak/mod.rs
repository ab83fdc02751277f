//! Two processes at work on hundreds of conversations for a long time, in all persistence modes, while
//! callers leave, stores are closed and opened again, one of the processes is killed now and then,
//! old runs are pruned and backups are made and opened.
//!
//! A third process, which this campaign is, decides who does what, keeps a model of every conversation
//! and compares it with what is stored, between the runs and at the end. It measures the two: memory,
//! open files, the length of the store's log and queue, and how long appends take. What it measures is
//! printed for each tenth of the time. Memory, open files and the log must not grow: the median of the
//! last third may be above that of the first third by the bounds of each alone (`flat.rs`). Latencies and
//! lengths of queues depend on the machine, and are printed and not judged.

mod backups;
mod child;
mod flat;
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

/// Two processes on one store for a long time, measured and compared with a model
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// How long
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// On how many conversations
    #[arg(long, default_value_t = 500)]
    pub conversations: u32,
    /// Of what is left to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The store that the processes share
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    pub store: StoreKind,
    /// A fault that must be found
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The program of the processes, if it is not this one
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

/// A fault in what is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Stores are forgotten instead of closed
    Leak,
    /// Runs are acknowledged that were never stored
    LostWrite,
    /// A run is stored whose last call has no result
    DanglingCall,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`], if a conversation is not what its model says, or something grows;
/// [`Failure::CannotRun`], if a process or a server does not start.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => env::current_exe().map_err(|source| Failure::CannotRun {
            what: "to find its own program".to_owned(),
            source: Some(source.into()),
        })?,
    };
    runtime()?.block_on(supervisor::supervise(&arguments, program))
}

/// What the campaign starts of itself: one of its two processes.
///
/// # Errors
///
/// [`Failure::CannotRun`], if the store cannot be opened.
pub fn work(arguments: WorkerArguments) -> Result<Figures, Failure> {
    runtime()?.block_on(worker::work(arguments))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|source| Failure::CannotRun {
        what: "to start a runtime".to_owned(),
        source: Some(source.into()),
    })
}
