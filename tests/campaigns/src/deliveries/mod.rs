//! Deliveries: two processes share a store and an update log (the updates that a run has sent to
//! its clients) in SQLite files. One of the processes executes a run, and the campaign kills
//! processes during the run.
//!
//! The clients of the run are in the process of the campaign. They connect, read slowly,
//! disconnect, and reconnect after the last event that they have received. After a kill, the
//! request is sent again. Either process may receive the command to stop the run.
//!
//! At the end:
//!
//! - Every client has received each update once and in order, and exactly the messages of the
//!   history.
//! - No process executes the run any longer.
//! - No stored message was requested from the model again.
//!
//! The rules for a client and the planted faults are shared with the tests of
//! `tower-chat-delivery`, which simulate both processes.

mod case;
#[path = "../../../../crates/tower-chat-delivery/tests/delivery/histories/client.rs"]
mod client;
#[path = "../../../../crates/tower-chat-delivery/tests/delivery/histories/planted.rs"]
mod planted;
mod process;
mod worker;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::ValueEnum;
use tower_chat::PersistenceMode;

pub use self::worker::{WorkerArguments, work};
use self::{case::Case, planted::Fault};
use crate::{Failure, Figures};

/// The duration of the lease of a run. After a kill, the case waits until the lease has expired. A
/// process that cannot renew the lease in this time, for example on a busy machine, can lose its
/// run.
const LEASE: Duration = Duration::from_secs(3);

/// Kills the processes of runs whose clients reconnect, and checks the updates that the clients
/// receive
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The number of runs
    #[arg(long, default_value_t = 20)]
    pub cases: u64,
    /// The seed of the answers and of the events
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The number of the first run
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// A fault that is planted into the log of the clients
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The program whose processes are killed; by default this program
    #[arg(long, hide = true)]
    pub program: Option<PathBuf>,
}

/// A fault that the campaign must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// A read lacks an update
    LostUpdate,
    /// A read returns an update twice
    DoubledUpdate,
    /// A read reports the end of a run that is in progress
    EarlyEnd,
}

impl Plant {
    fn fault(self) -> Fault {
        match self {
            Self::LostUpdate => Fault::Lost,
            Self::DoubledUpdate => Fault::Doubled,
            Self::EarlyEnd => Fault::EarlyEnd,
        }
    }
}

/// The mode of the processes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    PerRun,
    PerServiceCall,
    Journaled,
}

impl From<Mode> for PersistenceMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::PerRun => Self::PerRun,
            Mode::PerServiceCall => Self::PerServiceCall,
            Mode::Journaled => Self::Journaled,
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    kills: u64,
    stops: u64,
    later_attempts: u64,
    connections: u64,
    events: u64,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`] with the first broken rule, [`Failure::CannotRun`] if a process or a file
/// cannot be used.
pub fn run(arguments: &Arguments) -> Result<Figures, Failure> {
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::cannot_run)?;
    let mut counts = Counts::default();
    for case in arguments.first..arguments.first.saturating_add(arguments.cases) {
        let found = |what| Failure::Found { seed: arguments.seed, case, what };
        runtime.block_on(async {
            let case = Case::start(arguments, case).await?;
            case.run(&mut counts).await?.map_err(found)
        })?;
    }
    let mut figures = Figures::default();
    for (name, count) in [
        ("runs", counts.runs),
        ("killed processes", counts.kills),
        ("stops", counts.stops),
        ("attempts after the first", counts.later_attempts),
        ("connections", counts.connections),
        ("events", counts.events),
        ("seconds", began.elapsed().as_secs()),
    ] {
        figures.add(name, count);
    }
    Ok(figures)
}

fn histories(folder: &Path) -> PathBuf {
    folder.join("histories.db")
}

fn updates(folder: &Path) -> PathBuf {
    folder.join("updates.db")
}
