//! Starts workers (child processes that search), and finds the input that ended or hung a worker.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::{Arguments, Figures, Finding, Rule, program::Event};

/// The error of a search that cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// No target has a name that contains one of the given texts.
    #[error("no target is named like {names}: --list lists them")]
    NoTarget {
        /// The requested names.
        names: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// The worker cannot be started.
    #[error("the worker cannot be started: {0}")]
    Start(#[source] io::Error),
    /// A report of the worker cannot be encoded or decoded.
    #[error("a report of the worker is not JSON: {0}")]
    Worker(#[source] serde_json::Error),
    /// The worker ended before its first target.
    #[error("the worker ended with {status} before its first target")]
    EndedEarly {
        /// The exit status of the worker.
        status: String,
    },
    /// A worker ended or hung during a case, but not when the cases were repeated.
    #[error(
        "{target}: an input from case {case} on ended the worker, but not when it was repeated"
    )]
    NotReproduced {
        /// The target.
        target: String,
        /// The most recent case that the worker has reported.
        case: u64,
    },
}

impl SupervisorError {
    pub(crate) fn file(path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::File { path: path.as_ref().display().to_string(), source }
    }
}

#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) figures: Vec<Figures>,
    pub(crate) findings: Vec<Finding>,
}

/// Runs workers until all targets have been searched.
pub(crate) struct Supervisor<'a> {
    arguments: &'a Arguments,
    outcome: Outcome,
}

/// Where a worker ended, and the broken rule.
struct Position {
    target: String,
    /// The most recent case that the worker has reported.
    case: u64,
    rule: Rule,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, outcome: Outcome::default() }
    }

    pub(crate) fn run(mut self) -> Result<Outcome, SupervisorError> {
        let chosen = crate::targets::chosen(&self.arguments.targets, self.arguments.plant);
        let mut left: Vec<String> = chosen.into_iter().map(|target| target.name).collect();
        if left.is_empty() {
            let names = self.arguments.targets.join(", ");
            return Err(SupervisorError::NoTarget { names });
        }
        while !left.is_empty() {
            let command = self.command(&left);
            let Some(position) = self.follow(command)? else { break };
            let done = left.iter().position(|name| *name == position.target);
            left.drain(..done.map_or(left.len(), |index| index + 1));
            self.locate(position)?;
        }
        Ok(self.outcome)
    }

    fn command(&self, targets: &[String]) -> Command {
        let Arguments { executions, seed, case, plant, findings, .. } = self.arguments;
        let program = env::current_exe().unwrap_or_else(|_| "tower-chat-fuzz".into());
        let mut command = Command::new(program);
        command.args(targets).arg("--worker");
        command.arg("--executions").arg(executions.to_string());
        command.arg("--seed").arg(seed.to_string()).arg("--findings").arg(findings);
        for (option, number) in [
            ("--fast-executions", self.arguments.fast_executions),
            ("--slow-executions", self.arguments.slow_executions),
            ("--case", *case),
        ] {
            if let Some(number) = number {
                command.arg(option).arg(number.to_string());
            }
        }
        if let Some(plant) = plant {
            command.arg("--plant").arg(format!("{plant:?}").to_ascii_lowercase());
        }
        command
    }

    /// Reads the reports of a worker until it ends, and kills a worker that hangs. If the worker
    /// failed or hung, returns its last position.
    fn follow(&mut self, mut command: Command) -> Result<Option<Position>, SupervisorError> {
        let mut worker = command.stdout(Stdio::piped()).spawn().map_err(SupervisorError::Start)?;
        let events = events(&mut worker);
        let mut at = None;
        let rule = loop {
            match events.recv_timeout(Duration::from_secs(self.arguments.patience)) {
                Ok(Event::Begins { target }) => at = Some((target, self.arguments.first)),
                Ok(Event::At { case }) => {
                    if let Some((_, last)) = &mut at {
                        *last = case;
                    }
                }
                Ok(Event::Done(figures)) => {
                    eprintln!(
                        "{}: {} executions, {:.0} a second",
                        figures.target,
                        figures.executions,
                        figures.rate()
                    );
                    self.outcome.figures.push(figures);
                }
                Ok(Event::Found(finding)) => {
                    eprintln!("{finding}");
                    self.outcome.findings.push(finding);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _if_it_has_ended = worker.kill();
                    let _if_it_has_ended = worker.wait();
                    break Rule::Hung;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = worker.wait().map_err(SupervisorError::Start)?;
                    if status.success() {
                        return Ok(None);
                    }
                    break Rule::Ended(status.to_string());
                }
            }
        };
        match at {
            Some((target, case)) => Ok(Some(Position { target, case, rule })),
            None => Err(SupervisorError::EndedEarly { status: rule.to_string() }),
        }
    }

    /// Repeats the cases of a target from this position in a new worker, which saves each input
    /// before the execution. The last saved input is the one that ended or hung the first worker.
    fn locate(&mut self, from: Position) -> Result<(), SupervisorError> {
        let folder = &self.arguments.findings;
        let trace = folder.join(format!("{}-trace", from.target));
        fs::create_dir_all(folder).map_err(|source| SupervisorError::file(folder, source))?;
        let mut command = self.command(std::slice::from_ref(&from.target));
        command.arg("--first").arg(from.case.to_string()).arg("--trace").arg(&trace);
        match self.follow(command)? {
            Some(Position { target, case, rule }) => {
                let input =
                    fs::read(&trace).map_err(|source| SupervisorError::file(&trace, source))?;
                let seed = self.arguments.seed;
                let found = Finding::save(&target, seed, case, rule, &input, folder)
                    .map_err(|source| SupervisorError::file(folder, source))?;
                eprintln!("{found}");
                self.outcome.findings.push(found);
                let _if_it_fails = fs::remove_file(trace);
                Ok(())
            }
            None => Err(SupervisorError::NotReproduced { target: from.target, case: from.case }),
        }
    }
}

/// Returns the reports of a worker. The channel closes when the worker ends.
fn events(worker: &mut Child) -> Receiver<Event> {
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = worker.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else { continue };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}
