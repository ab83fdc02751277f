//! Transfers: processes that export, import, copy, delete and migrate are killed at random points,
//! and started again until one of them completes the transfer.
//!
//! The progress of a transfer is recorded in a file, the receipt. Half of the kills are at an event
//! of the transfer: the process aborts before or after it records the event. In the other half, the
//! campaign kills the process at a random time.
//!
//! The final content must equal the content after a transfer without a kill. The exported file, or
//! the export of the store, is compared byte for byte, and the receipt must count every
//! conversation once.

mod expected;
mod work;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use tower_chat_testkit::Rng;

use self::expected::Expected;
pub use self::work::work;
use crate::{Failure, Figures};

/// Kills processes that export, import, copy, delete and migrate, and checks the final content
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The number of transfers of each kind, each of which is killed several times
    #[arg(long, default_value_t = 3)]
    pub cases: u64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A planted fault, which the campaign must find
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The program whose processes are killed; by default this program
    #[arg(long, hide = true)]
    pub program: Option<PathBuf>,
}

/// A fault that the campaign has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// A copy continues after the conversation that it has begun, not after the last completed one
    SkippedConversation,
    /// A resumed deletion does not check whether the conversation that it has begun is deleted
    UnsettledReceipt,
    /// An export continues with the first conversation, not after the last complete one
    RepeatedConversation,
}

/// The operation of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Exports a store to a file
    Export,
    /// Imports a file into a store
    Import,
    /// Copies a store to another
    Copy,
    /// Deletes a scope
    Delete,
    /// Opens a file of an older version
    Migrate,
}

const OPERATIONS: [Operation; 5] =
    [Operation::Export, Operation::Import, Operation::Copy, Operation::Delete, Operation::Migrate];

/// The arguments of a process of the campaign.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerArguments {
    /// The operation
    #[arg(long, value_enum)]
    operation: Operation,
    /// The folder of the files
    #[arg(long)]
    folder: PathBuf,
    /// The event of the transfer at which the process kills itself
    #[arg(long)]
    dies_at: Option<u64>,
    /// Whether the receipt contains that event
    #[arg(long)]
    is_recorded: bool,
    /// A planted fault
    #[arg(long, value_enum)]
    plant: Option<Plant>,
}

/// The maximum number of kills of one transfer.
const MAX_KILLS: usize = 6;

/// The latest time at which the campaign kills a process, in microseconds.
const LATEST_KILL: usize = 60_000;

/// The time after which a process counts as hanging.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Kills transfers, and compares the final content.
///
/// # Errors
///
/// [`Failure::Found`] with the first broken rule, [`Failure::CannotRun`] if a store or a process
/// cannot be created.
pub fn run(arguments: &Arguments) -> Result<Figures, Failure> {
    let began = Instant::now();
    let expected = Expected::make(arguments.seed)?;
    let mut figures = Figures::default();
    for operation in OPERATIONS {
        let mut kills = 0;
        for case in 0..arguments.cases {
            kills += run_case(arguments, &expected, operation, case)?;
        }
        let name = name(operation);
        figures.add(format!("{name}: transfers"), arguments.cases);
        figures.add(format!("{name}: killed processes"), kills);
    }
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

fn name(operation: Operation) -> String {
    let value = operation.to_possible_value();
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Kills one transfer several times. Returns the number of kills.
fn run_case(
    arguments: &Arguments,
    expected: &Expected,
    operation: Operation,
    case: u64,
) -> Result<u64, Failure> {
    let mut rng = Rng::of(arguments.seed, case.wrapping_mul(16).wrapping_add(operation as u64));
    let folder = tempfile::tempdir().map_err(|error| cannot("make a folder", error))?;
    expected.prepare(operation, case, folder.path())?;
    let mut kills = 0_u64;
    let wanted = 1 + rng.below(MAX_KILLS);
    loop {
        let kill = (kills < wanted as u64).then(|| Kill::choose(&mut rng));
        if attempt(arguments, operation, folder.path(), kill)? {
            break;
        }
        kills += 1;
    }
    let found = |what: String| {
        let what = format!("{} after {kills} killed processes: {what}", name(operation));
        Failure::Found { seed: arguments.seed, case, what }
    };
    expected.check(operation, case, folder.path())?.map_or(Ok(kills), |what| Err(found(what)))
}

#[derive(Debug, Clone, Copy)]
enum Kill {
    /// The process kills itself at an event.
    AtEvent { event: u64, is_recorded: bool },
    /// The campaign kills the process after a time.
    After(Duration),
}

impl Kill {
    fn choose(rng: &mut Rng) -> Self {
        if rng.one_in(2) {
            Self::AtEvent { event: 1 + rng.below(12) as u64, is_recorded: rng.one_in(2) }
        } else {
            Self::After(Duration::from_micros(rng.below(LATEST_KILL) as u64))
        }
    }
}

fn attempt(
    arguments: &Arguments,
    operation: Operation,
    folder: &Path,
    kill: Option<Kill>,
) -> Result<bool, Failure> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|error| cannot("find this program", error))?,
    };
    let mut command = Command::new(&program);
    command.args(["transfers-worker", "--operation", &name(operation)]);
    command.arg("--folder").arg(folder).stderr(Stdio::piped());
    if let Some(plant) = arguments.plant.and_then(|plant| plant.to_possible_value()) {
        command.args(["--plant", plant.get_name()]);
    }
    if let Some(Kill::AtEvent { event, is_recorded }) = kill {
        command.args(["--dies-at", &event.to_string()]);
        if is_recorded {
            command.arg("--is-recorded");
        }
    }
    let mut child =
        command.spawn().map_err(|error| cannot(&format!("start {}", program.display()), error))?;
    if let Some(Kill::After(time)) = kill {
        thread::sleep(time);
        // The process may have ended already.
        drop(child.kill());
    }
    wait(&mut child, kill)
}

fn wait(child: &mut Child, kill: Option<Kill>) -> Result<bool, Failure> {
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| cannot("wait for a process", error))? {
            Some(status) => break status,
            None if began.elapsed() > TIME_LIMIT => {
                drop(child.kill());
                return Err(Failure::cannot_run(format!("a process hangs: {kill:?}")));
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    if status.success() {
        return Ok(true);
    }
    // A killed process has no exit code.
    if status.code().is_none() && kill.is_some() {
        return Ok(false);
    }
    let mut output = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        drop(std::io::Read::read_to_string(&mut stderr, &mut output));
    }
    Err(Failure::cannot_run(format!("a process ended with {status}: {output}")))
}

fn cannot(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::CannotRun { what: what.to_owned(), source: Some(error.into()) }
}

fn source(folder: &Path) -> PathBuf {
    folder.join("source.db")
}

fn target(folder: &Path) -> PathBuf {
    folder.join("target.db")
}

fn file(folder: &Path) -> PathBuf {
    folder.join("export.jsonl")
}

fn receipt(folder: &Path) -> PathBuf {
    folder.join("receipt.jsonl")
}

fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map(drop).map_err(|error| cannot(&format!("copy {}", from.display()), error))
}
