//! Transfers: processes that export, import, copy, delete and migrate are killed at any moment, and started
//! again until one of them comes to its end.
//!
//! A process is killed either by itself, at an event of the transfer before or after the receipt has the event, or
//! by the campaign, at a random time. What the last process leaves must equal what one process leaves that
//! nobody kills: the file or the store byte for byte as an export shows it, and a receipt that counts every
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

/// Kills processes that export, import, copy, delete and migrate, and compares what they leave
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// How many transfers of each kind are killed, each several times
    #[arg(long, default_value_t = 3)]
    pub cases: u64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A planted fault, which the campaign must find
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The program whose processes are killed; by default this one
    #[arg(long, hide = true)]
    pub program: Option<PathBuf>,
}

/// A fault that the campaign has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// A copy goes on after the conversation that it has begun, not after the last one that is done
    SkippedConversation,
    /// A deletion that goes on does not look whether the conversation that it has begun is gone
    UnsettledReceipt,
    /// An export goes on with the first conversation, not after the last one that is whole
    RepeatedConversation,
}

/// What a process does.
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

/// What a process of the campaign is told.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerArguments {
    /// What it does
    #[arg(long, value_enum)]
    operation: Operation,
    /// Where the files are
    #[arg(long)]
    folder: PathBuf,
    /// The event of the transfer at which it dies
    #[arg(long)]
    dies_at: Option<u64>,
    /// Whether the receipt has that event
    #[arg(long)]
    is_recorded: bool,
    /// A planted fault
    #[arg(long, value_enum)]
    plant: Option<Plant>,
}

/// How often one transfer is killed at most.
const MOST_KILLS: usize = 6;

/// After how many microseconds a process is killed at most, by the campaign.
const LATEST_KILL: usize = 60_000;

/// A process that takes longer counts as a hang.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Kills transfers and compares what they leave.
///
/// # Errors
///
/// [`Failure::Found`] with the first broken promise; [`Failure::CannotRun`], if a store or a process cannot be
/// made.
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

/// Kills one transfer several times. Returns how often.
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
    let wanted = 1 + rng.below(MOST_KILLS);
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

/// When a process is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// By itself, at an event.
    AtEvent { event: u64, is_recorded: bool },
    /// By the campaign, after a time.
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

/// Runs a process. Returns whether it came to its end.
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
        // It may have ended by itself.
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
    // A process that was killed has no exit code.
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

/// The files of a case.
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
