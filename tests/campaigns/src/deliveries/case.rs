//! One run, with two processes and some clients. The run may be executed several times, in
//! attempts: a process can take over the run when the lease of the other process has expired.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tower_chat::{HistoryStore, PersistenceMode, Role, run::RunId};
use tower_chat_delivery::{
    DetachedRunsLayer, RunEnd, RunKey, RunReader, RunState, SqliteUpdateLog, UpdatePosition,
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::Rng;

use super::{
    Arguments, Counts, Mode,
    client::{Client, stored_answers},
    histories,
    planted::PlantedLog,
    process::{Process, Settings},
    updates,
    worker::run_key,
};
use crate::Failure;

const CLIENTS: usize = 3;
const STEPS: usize = 60;
const MAX_KILLS: u64 = 2;
/// The time after which a run or a client counts as hanging.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The outcome of a step. The outer error ends the campaign, and the inner error is a broken rule.
type Step = Result<Result<(), String>, Failure>;

pub(super) struct Case {
    rng: Rng,
    folder: TempDir,
    run: RunKey,
    settings: Settings,
    processes: [Process; 2],
    asked: Arc<AtomicU64>,
    /// The layer through which the clients attach to the run. It executes no run itself.
    runs: DetachedRunsLayer,
    clients: Vec<Client>,
    connections: BTreeMap<usize, RunReader>,
    kills: u64,
    is_stopped: bool,
}

impl Case {
    pub(super) async fn start(arguments: &Arguments, number: u64) -> Result<Self, Failure> {
        let mut rng = Rng::of(arguments.seed, number);
        let folder = tempfile::tempdir().map_err(Failure::cannot_run)?;
        let program = match &arguments.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(Failure::cannot_run)?,
        };
        let modes = [Mode::PerRun, Mode::PerServiceCall, Mode::Journaled];
        let settings = Settings {
            program,
            folder: folder.path().to_owned(),
            run: RunId::new(),
            seed: rng.next(),
            mode: rng.one_of(&modes).copied().unwrap_or(Mode::Journaled),
            is_durable: rng.one_in(3),
        };
        let log = SqliteUpdateLog::open(updates(folder.path())).await;
        let log = log.map_err(Failure::cannot_run)?;
        let runs = match arguments.plant {
            Some(plant) => DetachedRunsLayer::new(PlantedLog::new(log, plant.fault())),
            None => DetachedRunsLayer::new(log),
        };
        let asked = Arc::default();
        let processes = [Process::start(&settings, &asked)?, Process::start(&settings, &asked)?];
        Ok(Self {
            rng,
            folder,
            run: run_key(settings.run),
            settings,
            processes,
            asked,
            runs,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            connections: BTreeMap::new(),
            kills: 0,
            is_stopped: false,
        })
    }

    pub(super) async fn run(mut self, counts: &mut Counts) -> Step {
        self.send(0).await?;
        for _ in 0..STEPS {
            let process = self.rng.below(2);
            match self.rng.below(20) {
                0..4 => self.connect(counts).await?,
                4..6 => self.disconnect(),
                6..14 => {
                    if let Err(broken) = self.read(counts).await {
                        return Ok(Err(broken));
                    }
                }
                14..17 => sleep(Duration::from_millis(self.rng.below(80) as u64)).await,
                17 if self.rng.one_in(4) => {
                    counts.stops += 1;
                    self.is_stopped = true;
                    self.command(process, "stop").await?;
                }
                18 if self.kills < MAX_KILLS && self.rng.one_in(2) => self.kill(process).await?,
                _ => self.resume(process).await?,
            }
        }
        counts.kills += self.kills;
        if let Err(broken) = self.complete(counts).await? {
            return Ok(Err(broken));
        }
        counts.runs += 1;
        self.check(counts).await
    }

    async fn command(&mut self, process: usize, command: &str) -> Result<(), Failure> {
        match self.processes.get_mut(process) {
            Some(process) => process.send(command).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, process: usize) -> Result<(), Failure> {
        self.command(process, "send").await
    }

    async fn connect(&mut self, counts: &mut Counts) -> Result<(), Failure> {
        let index = self.rng.below(CLIENTS);
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        let is_connected = self.connections.contains_key(&index);
        if is_connected || client.end == Some(RunEnd::Completed) {
            return Ok(());
        }
        let after = client.after.unwrap_or(UpdatePosition::START);
        // The run may not have begun yet.
        if let Ok(reader) = self.runs.attach(&self.run, after).await {
            client.end = None;
            counts.connections += 1;
            self.connections.insert(index, reader);
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        let index = self.rng.below(CLIENTS);
        self.connections.remove(&index);
    }

    async fn read(&mut self, counts: &mut Counts) -> Result<(), String> {
        let index = self.rng.below(CLIENTS);
        let count = 1 + self.rng.below(30);
        let Some(reader) = self.connections.get_mut(&index) else { return Ok(()) };
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        for _ in 0..count {
            match timeout(Duration::from_millis(60), reader.next()).await {
                Ok(Some(event)) => {
                    counts.events += 1;
                    client.receive(event.map_err(|error| error.to_string())?)?;
                }
                Ok(None) => {
                    self.connections.remove(&index);
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    async fn kill(&mut self, process: usize) -> Result<(), Failure> {
        let started = Process::start(&self.settings, &self.asked)?;
        if let Some(process) = self.processes.get_mut(process) {
            std::mem::replace(process, started).kill().await?;
            self.kills += 1;
        }
        Ok(())
    }

    async fn state(&self) -> Result<RunState, Failure> {
        self.runs.state(&self.run).await.map_err(Failure::cannot_run)
    }

    /// Sends the request again, unless a process executes the run. If the run is complete, sends
    /// the request only with a probability of one in four, like a client that has missed the end of
    /// the run.
    async fn resume(&mut self, process: usize) -> Result<(), Failure> {
        let sends = match self.state().await? {
            RunState::Open { .. } => false,
            RunState::Closed { end: RunEnd::Completed, .. } => self.rng.one_in(4),
            _ => true,
        };
        if sends { self.send(process).await } else { Ok(()) }
    }

    /// Sends the request again until the run is complete. Then all clients read the remaining
    /// updates.
    async fn complete(&mut self, counts: &mut Counts) -> Step {
        let began = Instant::now();
        loop {
            match self.state().await? {
                RunState::Closed { end: RunEnd::Completed, .. } => break,
                // A later attempt can fail with a conflict: the process of the earlier attempt,
                // which has lost its lease, stored the run first. The next attempt then returns the
                // stored answer.
                RunState::Closed { attempt, end: RunEnd::Failed { message } }
                    if attempt == 1 || !message.contains("another run") =>
                {
                    return Ok(Err(format!("the run has failed: {message}")));
                }
                state if began.elapsed() > TIME_LIMIT => {
                    return Ok(Err(format!("the run does not end: {state}")));
                }
                RunState::Open { .. } => {}
                _ => self.send(0).await?,
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.connections.clear();
        for client in &mut self.clients {
            if client.end == Some(RunEnd::Completed) {
                continue;
            }
            let after = client.after.unwrap_or(UpdatePosition::START);
            let reader = self.runs.attach(&self.run, after).await;
            let mut reader = reader.map_err(Failure::cannot_run)?;
            let read = async {
                while let Some(event) = reader.next().await {
                    counts.events += 1;
                    client.receive(event.map_err(|error| error.to_string())?)?;
                }
                Ok(())
            };
            let read = timeout(TIME_LIMIT, read).await;
            if let Err(broken) = read.unwrap_or_else(|_| Err("a client receives no end".to_owned()))
            {
                return Ok(Err(broken));
            }
        }
        Ok(Ok(()))
    }

    async fn check(mut self, counts: &mut Counts) -> Step {
        for process in &mut self.processes {
            if !process.is_drained(TIME_LIMIT).await? {
                return Ok(Err("a run is in progress after its end".to_owned()));
            }
        }
        let store = SqliteStore::open(histories(self.folder.path())).await;
        let store = store.map_err(Failure::cannot_run)?;
        let history = store.load(&self.run.conversation).await.map_err(Failure::cannot_run)?;
        store.close().await.map_err(Failure::cannot_run)?;
        let stored = stored_answers(&history.messages);
        let mode = PersistenceMode::from(self.settings.mode);
        let later = u64::from(self.state().await?.attempt().saturating_sub(1));
        for client in &self.clients {
            if let Err(broken) = client.check(&stored, mode) {
                return Ok(Err(broken));
            }
        }
        counts.later_attempts += later;
        // Each attempt after the first may request one answer again, because the previous attempt
        // may not have stored its last answer. A stop may end one request before its answer has a
        // text to store.
        let answers = history.messages.iter().filter(|message| message.role == Role::Assistant);
        let (answers, asked) = (answers.count() as u64, self.asked.load(Ordering::Relaxed));
        let without_answer = later + u64::from(self.is_stopped);
        if mode != PersistenceMode::PerRun && asked > answers + without_answer {
            return Ok(Err(format!(
                "{asked} requests to the model for {answers} answers in {} attempts",
                later + 1
            )));
        }
        Ok(Ok(()))
    }
}
