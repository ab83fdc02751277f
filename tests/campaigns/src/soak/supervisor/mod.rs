//! The supervisor. It decides the steps of the processes and compares the store with the models.

mod chores;
mod comparing;
mod reports;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{sync::mpsc, time::timeout};
use tower_chat::recovery::{self, RunEnd};
use tower_chat_testkit::{
    Rng,
    server::{PostgresServer, RedisServer},
};

use super::{
    Arguments, Plant, StoreKind,
    backups::Pending,
    child::{Child, ChildReport, Work},
    protocol::Command,
    samples::Samples,
    schedule::Chores,
    store::{Location, OpenStore},
};
use crate::{
    Failure, Figures,
    conversations::{ConversationModel, Job, Plan, chain, key},
};

/// The maximum number of conversations that a process works on at the same time.
const MAX_CONCURRENT: usize = 8;

/// The number of answers after which a conversation is pruned, unless it is pruned earlier. A prune
/// retains at least `KEEP` messages, minus a small random number.
const PRUNE_AFTER: u32 = 14;
const KEEP: u64 = 24;

/// The time without a report after which the processes count as hanging.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The interval at which the supervisor checks for due chores.
const TICK: Duration = Duration::from_millis(50);

struct Supervisor {
    arguments: Arguments,
    program: PathBuf,
    folder: TempDir,
    location: Location,
    store: OpenStore,
    models: Vec<ConversationModel>,
    free: Vec<u32>,
    children: [Child; 2],
    reports: mpsc::UnboundedSender<ChildReport>,
    rng: Rng,
    started: Instant,
    chores: Chores,
    samples: Samples,
    backup: Option<Pending>,
    measurements: u64,
    generations: u64,
    runs: u64,
    counts: BTreeMap<&'static str, u64>,
}

enum Server {
    None,
    Postgres(#[expect(dead_code, reason = "it ends when it is dropped")] PostgresServer),
    Redis(#[expect(dead_code, reason = "it ends when it is dropped")] RedisServer),
}

pub(super) async fn supervise(arguments: &Arguments, program: PathBuf) -> Result<Figures, Failure> {
    let folder =
        tempfile::Builder::new().prefix("soak-").tempdir().map_err(cannot("make a folder"))?;
    let (server, address) = start_server(arguments.store, &folder)?;
    let location = Location { kind: arguments.store, address };
    let store = location.open().await.map_err(|source| Failure::CannotRun {
        what: "open the store".to_owned(),
        source: Some(source),
    })?;
    let (reports, mut received) = mpsc::unbounded_channel();
    let start = |child| {
        let prefix = format!("g{child}");
        Child::start(&program, (child, &prefix, arguments.seed), &location, &reports)
    };
    let children = [start(0)?, start(1)?];
    let whole = Duration::from_secs(arguments.seconds);
    let mut supervisor = Supervisor {
        arguments: arguments.clone(),
        program,
        folder,
        location,
        store,
        models: (0..arguments.conversations).map(ConversationModel::new).collect(),
        free: (0..arguments.conversations).collect(),
        children,
        reports,
        rng: Rng::of(arguments.seed, 0),
        started: Instant::now(),
        chores: Chores::new(whole),
        samples: Samples::default(),
        backup: None,
        measurements: 0,
        generations: 2,
        runs: 0,
        counts: BTreeMap::new(),
    };
    supervisor.work(&mut received, whole).await?;
    let figures = supervisor.finish(&mut received).await;
    drop(server);
    figures
}

fn start_server(kind: StoreKind, folder: &TempDir) -> Result<(Server, String), Failure> {
    let missing = |source: tower_chat_testkit::server::Missing| Failure::CannotRun {
        what: "start a server".to_owned(),
        source: Some(source.into()),
    };
    Ok(match kind {
        StoreKind::Sqlite => {
            let file = folder.path().join("chat.db").to_string_lossy().into_owned();
            (Server::None, file)
        }
        StoreKind::Postgres => {
            let server = PostgresServer::start().map_err(missing)?;
            let address = server.address("postgres");
            (Server::Postgres(server), address)
        }
        StoreKind::Redis => {
            let server = RedisServer::start().map_err(missing)?;
            let address = server.address(0);
            (Server::Redis(server), address)
        }
    })
}

fn cannot(action: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::CannotRun { what: action.to_owned(), source: Some(source.into()) }
}

impl Supervisor {
    fn found(&self, what: impl Into<String>) -> Failure {
        Failure::Found { seed: self.arguments.seed, case: self.runs, what: what.into() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn time(&self) -> (Duration, Duration) {
        (self.started.elapsed(), Duration::from_secs(self.arguments.seconds))
    }

    async fn work(
        &mut self,
        received: &mut mpsc::UnboundedReceiver<ChildReport>,
        whole: Duration,
    ) -> Result<(), Failure> {
        let mut last = Instant::now();
        while self.started.elapsed() < whole {
            self.give_work().await;
            if let Ok(Some(report)) = timeout(TICK, received.recv()).await {
                last = Instant::now();
                self.handle_report(report).await?;
            }
            if last.elapsed() > TIME_LIMIT {
                return Err(self.found(format!("no report for {TIME_LIMIT:?}")));
            }
            self.do_chores().await?;
        }
        Ok(())
    }

    async fn give_work(&mut self) {
        for child in 0..self.children.len() {
            loop {
                let [first, second] = &self.children;
                let at = if child == 0 { first } else { second };
                if !at.is_open
                    || at.was_killed
                    || at.work.len() >= MAX_CONCURRENT
                    || self.free.is_empty()
                {
                    break;
                }
                let position = self.rng.below(self.free.len());
                let conversation = self.free.swap_remove(position);
                let command = self.next_command(conversation);
                let Some(at) = self.children.get_mut(child) else { return };
                let work = match command {
                    Command::Prune { .. } => Work::Prune,
                    _ => Work::Run { restarts: at.restarts },
                };
                at.work.insert(conversation, work);
                at.send(&command).await;
            }
        }
    }

    fn next_command(&mut self, conversation: u32) -> Command {
        let seed = self.arguments.seed;
        let is_again = self.rng.one_in(2);
        let job_seed = self.rng.next();
        let (is_early, fewer) = (self.rng.one_in(20), self.rng.below(22) as u64);
        let Some(model) = self.models.get_mut(conversation as usize) else {
            return Command::Measure { number: 0 };
        };
        if model.since_prune >= PRUNE_AFTER || (is_early && model.since_prune > 1) {
            let keep = KEEP - fewer;
            model.begin_prune(keep);
            return Command::Prune { conversation, keep };
        }
        let (turn, run) = model.begin(is_again, |turn| Plan::of(seed, turn).mode);
        self.runs += 1;
        let job = Job { turn, run, seed: job_seed, is_unstable: true };
        let is_planted = self.runs % 20 == 19;
        match self.arguments.plant {
            Some(Plant::LostWrite) if is_planted => Command::PretendToRun(job),
            Some(Plant::DanglingCall) if is_planted => Command::RunWithoutResult(job),
            _ => Command::Run(job),
        }
    }

    /// Waits for the work in progress, ends the open runs (which were neither committed nor
    /// discarded), and compares every conversation with its model.
    async fn finish(
        mut self,
        received: &mut mpsc::UnboundedReceiver<ChildReport>,
    ) -> Result<Figures, Failure> {
        let whole = self.started.elapsed();
        while self.children.iter().any(|child| !child.work.is_empty()) || self.backup.is_some() {
            match timeout(TIME_LIMIT, received.recv()).await {
                Ok(Some(report)) => self.handle_report(report).await?,
                _ => return Err(self.found("the last runs did not end")),
            }
        }
        for child in &mut self.children {
            child.send(&Command::Quit).await;
            // A process that was killed at the end has no successor. Its exit status is not a
            // fault.
            if !child.wait().await && !child.was_killed {
                return Err(self.found("a process ended with an error"));
            }
        }
        for conversation in 0..self.arguments.conversations {
            self.check(conversation).await?;
            let closed = recovery::close(&self.store, &key(conversation), RunEnd::Commit).await;
            if closed.map_err(|error| self.found(chain(&error)))? {
                self.count("open runs ended at the end");
                self.check(conversation).await?;
            }
        }
        self.verify().await?;
        if let Some(growth) = self.samples.growth() {
            return Err(self.found(growth));
        }
        let mut figures = Figures::default();
        figures.add("seconds", whole.as_secs());
        figures.add("conversations", self.arguments.conversations);
        figures.add("requests", self.runs);
        for (what, count) in &self.counts {
            figures.add(what, count);
        }
        self.samples.print(&mut figures);
        Ok(figures)
    }
}
