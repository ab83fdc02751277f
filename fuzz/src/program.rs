//! The command line of the program, and its modes.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::{
    Figures, Finding, Plant,
    figures::table,
    search::{Broken, Search, record_panics},
    supervisor::{Outcome, Supervisor, SupervisorError},
    targets::{self, Target, chosen},
};

/// Runs every parser of external data with damaged inputs
#[derive(Debug, Clone, Parser)]
pub struct Arguments {
    /// The targets: names, or parts of names; by default all targets
    pub targets: Vec<String>,
    /// The number of inputs of each target
    #[arg(long, default_value_t = 2_000)]
    pub executions: u64,
    /// The number of inputs of each target that processes more than 10,000 inputs a second; by
    /// default the same as `--executions`
    #[arg(long)]
    pub fast_executions: Option<u64>,
    /// The number of inputs of each target that needs a file, a connection or a store for each
    /// input; by default the same as `--executions`
    #[arg(long)]
    pub slow_executions: Option<u64>,
    /// The seed of the damage
    #[arg(long, default_value_t = 20_261_123)]
    pub seed: u64,
    /// Executes only the case with this number
    #[arg(long)]
    pub case: Option<u64>,
    /// Executes the targets only with the content of this file, undamaged
    #[arg(long)]
    pub input: Option<PathBuf>,
    /// Plants a fault in the parsers, which the search must find
    #[arg(long)]
    pub plant: Option<Plant>,
    /// The folder for inputs that break a rule
    #[arg(long, default_value = "target/fuzz")]
    pub findings: PathBuf,
    /// The seconds without progress after which an input counts as a hang
    #[arg(long, default_value_t = 120)]
    pub patience: u64,
    /// Records the replies of Redis again, from an empty server at this address
    #[arg(long, value_name = "HOST:PORT")]
    pub record_redis: Option<String>,
    /// Lists the targets
    #[arg(long)]
    pub list: bool,
    /// Searches in this process, and reports to the supervisor in lines of JSON
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
    /// The number of the first case
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) first: u64,
    /// Saves every input in this file before the parser reads it
    #[arg(long, hide = true)]
    pub(crate) trace: Option<PathBuf>,
}

/// A report of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Begins { target: String },
    At { case: u64 },
    Done(Figures),
    Found(Finding),
}

/// The rate, in executions per second, from which a target is executed with `--fast-executions`
/// inputs.
const FAST: f64 = 10_000.0;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the program. Returns whether there are no findings.
///
/// # Errors
///
/// [`SupervisorError`], if the search cannot continue.
pub fn run(arguments: &Arguments) -> Result<bool, SupervisorError> {
    if arguments.list {
        for target in targets::all(None) {
            println!("{:<24} {}", target.name, target.parser);
        }
        return Ok(true);
    }
    if let Some(address) = &arguments.record_redis {
        let recorded = targets::record_redis(address);
        return recorded.map(|()| true).map_err(|source| SupervisorError::file("seeds", source));
    }
    if let Some(file) = &arguments.input {
        return replay(arguments, file);
    }
    if arguments.worker {
        return work(arguments).map(|()| true);
    }
    let Outcome { figures, findings } = Supervisor::new(arguments).run()?;
    print!("{}", table(&figures));
    for finding in &findings {
        println!("{finding}");
    }
    println!("seed {}; {} findings", arguments.seed, findings.len());
    Ok(findings.is_empty())
}

fn replay(arguments: &Arguments, file: &Path) -> Result<bool, SupervisorError> {
    let input = fs::read(file).map_err(|source| SupervisorError::file(file, source))?;
    let mut is_good = true;
    record_panics();
    for target in chosen(&arguments.targets, arguments.plant) {
        let target = target.make();
        let search = Search { target: &target, seed: arguments.seed, plant: arguments.plant };
        match search.input(&input, arguments.case.unwrap_or_default()) {
            Ok(true) => println!("{}: accepted", target.name),
            Ok(false) => println!("{}: refused", target.name),
            Err(rule) => {
                is_good = false;
                println!("{}: {rule}", target.name);
            }
        }
    }
    Ok(is_good)
}

fn work(arguments: &Arguments) -> Result<(), SupervisorError> {
    record_panics();
    for entry in chosen(&arguments.targets, arguments.plant) {
        send(&Event::Begins { target: entry.name.clone() })?;
        let target = entry.make();
        let mut figures = Figures { target: target.name.clone(), ..Figures::default() };
        let executions = match arguments.slow_executions {
            Some(fewer) if entry.is_slow => fewer,
            _ => arguments.executions,
        };
        if let Err(broken) = search(arguments, &target, executions, &mut figures) {
            let Broken { case, rule, input } = broken;
            let (name, folder) = (&target.name, &arguments.findings);
            let found = Finding::save(name, arguments.seed, case, rule, &input, folder);
            send(&Event::Found(found.map_err(|source| SupervisorError::file(folder, source))?))?;
        }
        send(&Event::Done(figures))?;
    }
    Ok(())
}

fn search(
    arguments: &Arguments,
    target: &Target,
    executions: u64,
    figures: &mut Figures,
) -> Result<(), Broken> {
    let search = Search { target, seed: arguments.seed, plant: arguments.plant };
    let mut reported = Instant::now();
    let mut begins = |case, input: &[u8]| {
        if let Some(file) = &arguments.trace {
            let _if_it_fails = fs::write(file, input);
        }
        if arguments.trace.is_some() || reported.elapsed() > PROGRESS_INTERVAL {
            reported = Instant::now();
            let _if_the_supervisor_has_ended = send(&Event::At { case });
        }
    };
    if let Some(case) = arguments.case {
        return search.run(case..case + 1, figures, &mut begins);
    }
    let first = arguments.first;
    search.run(first..executions, figures, &mut begins)?;
    let more = arguments.fast_executions.unwrap_or_default();
    if figures.rate() > FAST && more > executions {
        search.run(executions.max(first)..more, figures, &mut begins)?;
    }
    Ok(())
}

fn send(event: &Event) -> Result<(), SupervisorError> {
    let line = serde_json::to_string(event).map_err(SupervisorError::Worker)?;
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|source| SupervisorError::file("the standard output", source))
}
