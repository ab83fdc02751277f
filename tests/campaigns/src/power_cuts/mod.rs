//! Power cuts: the content of a store on a disk after a power loss.
//!
//! A workload runs in its own process under strace. strace records, in their order, every change of
//! a file with its data, every sync, and every note of the workload. A note says that an operation
//! began or was acknowledged.
//!
//! A cut is a position in this order, and a random choice of the unsynced changes that reached the
//! disk (`disk.rs` describes the model of a disk). The campaign creates the files of this disk,
//! opens the store, and compares its content with the notes.

mod check;
mod disk;
mod expected;
mod notes;
mod recording;
mod trace;
mod verify;
mod workload;

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use tower_chat_testkit::Rng;

pub use self::workload::WorkloadArguments;
use self::{
    check::Outcome, disk::Disk, expected::History, notes::Note, recording::Recording,
    workload::Plan,
};
pub(crate) use self::{verify::problem, workload::stack};
use crate::{Failure, Figures};

/// Simulates power loss at random moments, and checks the content of a SQLite store
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The number of workloads
    #[arg(long, default_value_t = 6)]
    pub cases: u64,
    /// The number of cuts of each workload
    #[arg(long, default_value_t = 20)]
    pub cuts: u64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The number of the first workload
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// A planted fault, which the search must find
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The folder of the recordings. Existing recordings are used again, and missing ones are
    /// created
    #[arg(long)]
    pub recordings: Option<PathBuf>,
    /// The program that runs the workloads; by default this program
    #[arg(long, hide = true)]
    pub program: Option<PathBuf>,
}

/// A fault that a search has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// No sync reaches the disk
    NoSyncs,
    /// Syncs of folders do not reach the disk
    NoFolderSyncs,
    /// Writes are acknowledged before they are stored
    EarlyAcknowledgement,
}

impl Plant {
    /// Returns whether a sync of a folder reaches the disk in spite of this fault.
    fn syncs_folders(self) -> bool {
        match self {
            Self::NoSyncs | Self::NoFolderSyncs => false,
            Self::EarlyAcknowledgement => true,
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    full: u64,
    large: u64,
    cuts: u64,
    cuts_full: u64,
    writes: u64,
    acknowledged: u64,
    unsynced: u64,
    lost: u64,
    torn: u64,
    changes_lost: u64,
    open_runs: u64,
    backups: u64,
    absent: u64,
}

/// Simulates power loss at random moments of random workloads.
///
/// # Errors
///
/// [`Failure::Found`] with the first cut after which a rule is broken, [`Failure::CannotRun`] if
/// strace is missing or a workload cannot be recorded.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let began = Instant::now();
    let mut counts = Counts::default();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(cannot("start tokio"))?;
    for case in arguments.first..arguments.first + arguments.cases {
        let folder = tempfile::tempdir().map_err(cannot("make a folder"))?;
        let recorded = match &arguments.recordings {
            Some(recordings) => recordings.join(format!("{}-{case}", arguments.seed)),
            None => folder.path().join("recorded"),
        };
        let (recording, history) = record(&arguments, case, &recorded)?;
        let plan = Plan::of(arguments.seed, case);
        counts.full += u64::from(plan.is_full);
        counts.large += u64::from(plan.is_large);
        counts.writes += history.writes.len() as u64;
        let checked =
            runtime.block_on(cut(&arguments, case, (&recording, &history), &plan, &mut counts));
        if let Err(what) = checked {
            // The seed does not reproduce the finding, because the threads of a workload interleave
            // differently each time. The recording does.
            let what = match arguments.plant {
                None => {
                    drop(folder.keep());
                    format!("{what} (recorded in {})", recorded.display())
                }
                Some(_) => what,
            };
            return Err(Failure::Found { seed: arguments.seed, case, what });
        }
    }
    Ok(counts.figures(&arguments, began))
}

/// Cuts a workload at random moments.
async fn cut(
    arguments: &Arguments,
    case: u64,
    (recording, history): (&Recording, &History),
    plan: &Plan,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut rng = Rng::of(arguments.seed ^ 0xc07, case);
    let mut steps: Vec<usize> =
        (0..arguments.cuts).map(|_| random_step(recording, &mut rng)).collect();
    steps.sort_unstable();
    let mut disk = Disk::new(recording, arguments.plant);
    for (number, step) in steps.into_iter().enumerate() {
        disk.advance(step);
        let mut rng = Rng::of(rng.next(), number as u64);
        let image = disk.cut(&mut rng);
        let line = recording.line(step);
        let bounds = history.bounds(line, plan.is_full);
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        check::write_files(&image, folder.path(), &mut rng).map_err(|error| error.to_string())?;
        let checked = check::check(folder.path(), history, bounds, &mut rng).await;
        let outcome = checked.map_err(|what| {
            let mode = if plan.is_full { "Full" } else { "Normal" };
            let files: Vec<_> = image.files.iter().map(|(name, it)| (name, it.len())).collect();
            format!(
                "cut {number} of workload {case} ({mode}), before line {line} of its trace, with \
                 {files:?}: {what}"
            )
        })?;
        counts.add(plan, &outcome, &image);
        counts.acknowledged += history.writes.iter().filter(|done| **done < line).count() as u64;
    }
    Ok(())
}

fn random_step(recording: &Recording, rng: &mut Rng) -> usize {
    match rng.one_in(3) {
        false => rng.below(recording.len() + 1),
        true => match rng.one_of(&recording.notes) {
            Some((line, _)) => recording.step_after(*line),
            None => recording.len(),
        },
    }
}

fn record(
    arguments: &Arguments,
    case: u64,
    recorded: &Path,
) -> Result<(Recording, History), Failure> {
    std::fs::create_dir_all(recorded).map_err(cannot("make a folder"))?;
    let recorded = recorded.canonicalize().map_err(cannot("find a folder"))?;
    let [folder, trace, notes] = ["folder", "trace", "notes"].map(|name| recorded.join(name));
    if !trace.exists() {
        std::fs::create_dir_all(&folder).map_err(cannot("make a folder"))?;
        trace_workload(arguments, case, (&folder, &trace, &notes))?;
    }
    let traced = trace::read(&trace).map_err(cannot("read a trace"))?;
    let recording = Recording::of(traced, &folder, &notes).map_err(cannot("follow a trace"))?;
    let lines = recording
        .notes
        .iter()
        .map(|(line, text)| serde_json::from_str::<Note>(text).map(|note| (*line, note)));
    let lines = lines.collect::<Result<Vec<_>, _>>().map_err(cannot("read the notes"))?;
    if recording.len() == 0 || lines.is_empty() {
        return Err(Failure::cannot_run("the trace of a workload has no steps or no notes"));
    }
    let history = History::of(&lines);
    let found = |what| Failure::Found { seed: arguments.seed, case, what };
    Ok((recording, history.map_err(found)?))
}

fn trace_workload(
    arguments: &Arguments,
    case: u64,
    (folder, trace, notes): (&Path, &Path, &Path),
) -> Result<(), Failure> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(cannot("find this program"))?,
    };
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-xx", "-s", "100000000", "-e", trace::TRACED, "-o"]);
    command.arg(trace).arg(program).arg("power-cuts-workload");
    command.args(["--seed", &arguments.seed.to_string(), "--workload", &case.to_string()]);
    command.arg("--folder").arg(folder).arg("--notes").arg(notes);
    if arguments.plant == Some(Plant::EarlyAcknowledgement) {
        command.arg("--early");
    }
    let output = command.stdin(Stdio::null()).output().map_err(cannot("start strace"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let what = format!("workload {case} fails without any cut: {printed}");
    Err(Failure::Found { seed: arguments.seed, case, what })
}

/// Runs a workload in this process, which was started by `strace`.
///
/// # Errors
///
/// [`Failure::CannotRun`] with the error of the workload.
pub fn run_workload(arguments: &WorkloadArguments) -> Result<Figures, Failure> {
    match workload::run(arguments) {
        Ok(()) => Ok(Figures::default()),
        Err(error) => {
            Err(Failure::CannotRun { what: "run a workload".to_owned(), source: Some(error) })
        }
    }
}

/// Checks whether workloads can be recorded on this machine.
///
/// # Errors
///
/// The reason why they cannot.
pub fn can_record() -> io::Result<()> {
    let status = Command::new("strace")
        .args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other("strace is not permitted to trace processes")),
    }
}

fn cannot<E: std::error::Error + Send + Sync + 'static>(what: &str) -> impl Fn(E) -> Failure {
    let what = what.to_owned();
    move |source| Failure::CannotRun { what: what.clone(), source: Some(Box::new(source)) }
}

impl Counts {
    fn add(&mut self, plan: &Plan, outcome: &Outcome, image: &disk::DiskImage) {
        self.cuts += 1;
        self.cuts_full += u64::from(plan.is_full);
        self.unsynced += u64::from(image.unsynced > 0);
        self.lost += u64::from(image.lost > 0);
        self.torn += u64::from(image.torn > 0);
        self.changes_lost += u64::from(outcome.lost_changes > 0);
        self.open_runs += u64::from(outcome.open_runs > 0);
        self.backups += u64::from(outcome.backups > 0);
        self.absent += u64::from(!image.files.contains_key(Path::new(workload::FILE)));
    }

    fn figures(&self, arguments: &Arguments, began: Instant) -> Figures {
        let mut figures = Figures::default();
        let Self { full, large, cuts, cuts_full, .. } = self;
        let normal = arguments.cases - full;
        figures.add("workloads", format!("{} ({full} Full, {normal} Normal)", arguments.cases));
        figures.add("workloads that fill the log", large);
        figures.add("writes acknowledged in them", self.writes);
        figures.add("cuts", cuts);
        figures.add("cuts under Full", cuts_full);
        figures.add("writes acknowledged before the cuts", self.acknowledged);
        figures.add("cuts with unsynced changes", self.unsynced);
        figures.add("cuts that lost unsynced changes", self.lost);
        figures.add("cuts with a torn write", self.torn);
        figures.add("cuts after which a started change was missing", self.changes_lost);
        figures.add("cuts with an open run, which was ended", self.open_runs);
        figures.add("cuts with a backup", self.backups);
        figures.add("cuts before the file existed", self.absent);
        figures.add("seconds", began.elapsed().as_secs());
        figures
    }
}
