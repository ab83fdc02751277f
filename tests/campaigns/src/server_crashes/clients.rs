//! Executes runs during a crash of the server, and compares the stored messages with the models of
//! the runs.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::JoinSet};
use tower_chat::{
    HistoryStore, Message,
    message::MessageId,
    recovery::{self, RunEnd},
    run::RunId,
    store::{Journal, Revision, StoreError, author::Write},
};
use tower_chat_testkit::Rng;

use super::{Arguments, Plant, StoreKind, servers::Server};
use crate::{
    Failure, Figures,
    conversations::{
        ConversationModel, Job, Outcome, PLANNED, Plan, ReadAt, Reporter, Stack, Turn, chain, key,
    },
    shared_store::SharedStore,
};

/// A time that is longer than the restart of any server.
const LONG: Duration = Duration::from_secs(120);
/// A time that is shorter than the restart of any server.
const SHORT: Duration = Duration::from_millis(50);

/// With `appendfsync everysec`, the server may lose an answer only if the caller received it less
/// than this time before the crash. Redis documents a loss of one or two seconds.
const LONGEST_LOSS: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
struct SharedState(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    models: Vec<ConversationModel>,
    wrong: Vec<String>,
    /// Whether the server has crashed and the models still contain answers that it may have lost.
    is_losing: bool,
    /// The time at which the caller received each answer.
    acknowledged: HashMap<Turn, Instant>,
    /// The runs whose request was sent and whose answer was not yet received.
    in_flight: HashSet<Turn>,
    requests: u64,
    failed: u64,
    conflicts: u64,
}

#[derive(Debug, Default)]
struct Counts {
    crashes: u64,
    cuts: u64,
    unsynced: u64,
    acknowledged: u64,
    lost: u64,
    longest_loss: Duration,
    refused: u64,
    open_runs: u64,
    patient: u64,
}

#[derive(Debug)]
pub(super) struct Clients {
    arguments: Arguments,
    server: Server,
    shared: SharedState,
    rng: Rng,
    counts: Counts,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reporter(&self) -> Reporter {
        let shared = self.clone();
        Reporter::new(move |turn, event| {
            let mut state = shared.state();
            let is_losing = state.is_losing;
            let model = state.models.get_mut(turn.conversation as usize);
            let added = match (event, model) {
                (Ok(event), Some(model)) => match is_losing {
                    true => model.add(turn, event),
                    false => model.check_shown(turn, &event).and_then(|()| model.add(turn, event)),
                },
                (Ok(_), None) => Err("the conversation has no model".to_owned()),
                (Err(what), _) => Err(what),
            };
            if let Err(what) = added {
                state.wrong.push(format!("run {}: {what}", turn.token()));
            }
        })
    }
}

impl Clients {
    pub(super) async fn crash(arguments: Arguments) -> Result<Figures, Failure> {
        let (kind, plant) = (arguments.store, arguments.plant);
        let server = tokio::task::spawn_blocking(move || Server::start(kind, plant)).await;
        let server = server.map_err(|error| Failure::cannot_run(error.to_string()))??;
        let models = (0..arguments.conversations).map(ConversationModel::new).collect();
        let state = State {
            models,
            wrong: Vec::new(),
            is_losing: false,
            acknowledged: HashMap::new(),
            in_flight: HashSet::new(),
            requests: 0,
            failed: 0,
            conflicts: 0,
        };
        let mut clients = Self {
            rng: Rng::of(arguments.seed, 0),
            arguments,
            server,
            shared: SharedState(Arc::new(Mutex::new(state))),
            counts: Counts::default(),
        };
        // Creates the tables of the store before the first crash.
        clients.open(LONG).await?.close().await.map_err(|error| clients.found(chain(&error)))?;
        while clients.counts.crashes < clients.arguments.crashes {
            clients.crash_once().await?;
        }
        clients.finish().await
    }

    fn found(&self, what: impl Into<String>) -> Failure {
        let (seed, case) = (self.arguments.seed, self.counts.crashes);
        Failure::Found { seed, case, what: what.into() }
    }

    async fn open(&self, retry_timeout: Duration) -> Result<SharedStore, Failure> {
        self.server.open(retry_timeout).await.map_err(|source| Failure::CannotRun {
            what: "open the store".to_owned(),
            source: Some(source),
        })
    }

    async fn crash_once(&mut self) -> Result<(), Failure> {
        // A power loss reveals missing syncs, and a crash reveals missing writes.
        let is_cut = match self.arguments.plant {
            None => !self.rng.one_in(3),
            Some(Plant::NoSyncs) => true,
            Some(Plant::NoWrites) => false,
        };
        let is_patient = self.rng.one_in(2);
        tokio::task::block_in_place(|| self.server.record())?;
        let store = self.open(if is_patient { LONG } else { SHORT }).await?;
        let has_crashed = Arc::new(AtomicBool::new(false));
        let (answers, mut answered) = watch::channel(0_u64);
        let mut tasks = JoinSet::new();
        let stack = self.stack();
        for conversation in 0..self.arguments.conversations {
            tasks.spawn(run_until(
                has_crashed.clone(),
                (self.shared.clone(), stack.clone(), store.clone()),
                answers.clone(),
                (conversation, self.rng.next()),
            ));
        }
        let enough = 10 + self.rng.below(110) as u64;
        drop(answers);
        // The wait also ends if every client has failed. Their tasks then return the errors.
        drop(answered.wait_for(|count| *count >= enough).await);
        has_crashed.store(true, Ordering::SeqCst);
        let crashed = Instant::now();
        let in_flight = {
            let mut state = self.shared.state();
            state.is_losing = self.arguments.store == StoreKind::RedisEverysec;
            state.in_flight.clone()
        };
        let (server, rng) = (&mut self.server, &mut self.rng);
        let unsynced = tokio::task::block_in_place(|| server.crash(is_cut, rng))?;
        while let Some(ended) = tasks.join_next().await {
            let ended = ended.unwrap_or_else(|error| Err(error.to_string()));
            ended.map_err(|what| self.found(what))?;
        }
        drop(store);
        self.counts.crashes += 1;
        self.counts.cuts += u64::from(is_cut);
        self.counts.unsynced += unsynced;
        self.counts.patient += u64::from(is_patient);
        let wrong = self.shared.state().wrong.first().cloned();
        if let Some(what) = wrong {
            return Err(self.found(what));
        }
        self.compare(crashed, &in_flight).await
    }

    fn stack(&self) -> Stack {
        let prefix = format!("s{}", self.counts.crashes);
        Stack::new(self.arguments.seed, &prefix, self.shared.reporter())
    }

    async fn compare(
        &mut self,
        crashed: Instant,
        in_flight: &HashSet<Turn>,
    ) -> Result<(), Failure> {
        let store = self.open(LONG).await?;
        for conversation in 0..self.arguments.conversations {
            let compared = self.compare_one(&store, conversation, (crashed, in_flight)).await;
            compared.map_err(|what| {
                self.found(format!("conversation {}: {what}", key(conversation)))
            })?;
        }
        self.shared.state().is_losing = false;
        if self.counts.longest_loss > LONGEST_LOSS {
            let longest = self.counts.longest_loss;
            return Err(self.found(format!(
                "an answer was lost that was received {longest:?} before the crash"
            )));
        }
        store.close().await.map_err(|error| self.found(chain(&error)))
    }

    async fn compare_one(
        &mut self,
        store: &SharedStore,
        conversation: u32,
        (crashed, in_flight): (Instant, &HashSet<Turn>),
    ) -> Result<(), String> {
        let key = key(conversation);
        let history = store.load(&key).await.map_err(|error| chain(&error))?;
        let open = store.as_dyn().open_run(&key).await.map_err(|error| chain(&error))?;
        self.counts.open_runs += u64::from(open.is_some());
        let lost = {
            let mut state = self.shared.state();
            let Some(model) = state.models.get_mut(conversation as usize) else { return Ok(()) };
            let lost = match self.arguments.store {
                StoreKind::RedisEverysec => {
                    model.remove_lost_end(&history, open.as_ref(), in_flight)?
                }
                StoreKind::RedisAlways | StoreKind::Postgres => Vec::new(),
            };
            let inspected = model.inspect(&history, open.as_ref(), ReadAt::Now)?;
            model.remember(inspected);
            lost
        };
        for turn in &lost {
            if let Some(at) = self.shared.state().acknowledged.get(turn) {
                let before = crashed.saturating_duration_since(*at);
                self.counts.longest_loss = self.counts.longest_loss.max(before);
            }
        }
        self.counts.lost += lost.len() as u64;
        self.counts.acknowledged = self.shared.state().acknowledged.len() as u64;
        if open.is_none() {
            self.check_writer_ahead(store, conversation, history.head.revision).await?;
        }
        Ok(())
    }

    /// Checks that the server refuses a write that expects the revision of lost messages.
    async fn check_writer_ahead(
        &mut self,
        store: &SharedStore,
        conversation: u32,
        found: Revision,
    ) -> Result<(), String> {
        let expected = Revision { incarnation: found.incarnation, sequence: found.sequence + 2 };
        let first = MessageId { run: RunId::new(), index: 0 };
        let message = Message::user(format!("after lost messages, {}", self.rng.next()));
        let write = Write::new(key(conversation), first, expected, [message.into()]);
        let slot = store.reserve().await.map_err(|error| chain(&error))?;
        match store.append(slot, vec![write]).await.map_err(|error| error.source) {
            Err(StoreError::Conflict(_)) => {
                self.counts.refused += 1;
                Ok(())
            }
            other => Err(format!("a writer that expects {expected:?} of {found:?} got {other:?}")),
        }
    }

    /// Ends the open runs (which were neither committed nor discarded), completes another run in
    /// every conversation, and compares every conversation with its model.
    async fn finish(mut self) -> Result<Figures, Failure> {
        let store = self.open(LONG).await?;
        for conversation in 0..self.arguments.conversations {
            let closed = recovery::close(&store, &key(conversation), RunEnd::Commit).await;
            closed.map_err(|error| self.found(chain(&error)))?;
        }
        let has_crashed = Arc::new(AtomicBool::new(true));
        for conversation in 0..self.arguments.conversations {
            let shared = (self.shared.clone(), self.stack(), store.clone());
            let answers = watch::channel(0).0;
            let ended = run_once(&has_crashed, &shared, &answers, (conversation, 0), false).await;
            match ended {
                Outcome::Answered { .. } => {}
                other => {
                    return Err(self.found(format!("the last run of {conversation}: {other:?}")));
                }
            }
        }
        self.compare(Instant::now(), &HashSet::new()).await?;
        let state = self.shared.state();
        let mut figures = Figures::default();
        let counts = &self.counts;
        figures.add("crashes", counts.crashes);
        figures.add("crashes with a power loss", counts.cuts);
        figures.add("bytes written, not synced and lost", counts.unsynced);
        figures.add("crashes with clients that retried for long", counts.patient);
        figures.add("requests", state.requests);
        figures.add("answers received", state.acknowledged.len());
        figures.add("requests that failed", state.failed);
        figures.add("conflicts among these", state.conflicts);
        figures.add("open runs after a crash", counts.open_runs);
        figures.add("answers lost", counts.lost);
        figures.add(
            "longest time from a lost answer to the crash, ms",
            counts.longest_loss.as_millis(),
        );
        figures.add("writers ahead of the server, refused", counts.refused);
        Ok(figures)
    }
}

/// Sends requests to a conversation until the server has crashed. A failure before the crash is an
/// error.
async fn run_until(
    has_crashed: Arc<AtomicBool>,
    shared: (SharedState, Stack, SharedStore),
    answers: watch::Sender<u64>,
    (conversation, seed): (u32, u64),
) -> Result<(), String> {
    let mut rng = Rng::of(seed, 0);
    while !has_crashed.load(Ordering::SeqCst) {
        let seeds = (conversation, rng.next());
        let outcome = run_once(&has_crashed, &shared, &answers, seeds, rng.one_in(3)).await;
        match outcome {
            Outcome::Answered { .. } | Outcome::Dropped => {}
            Outcome::Failed { error } if error.contains(PLANNED) => {}
            Outcome::Failed { .. } if has_crashed.load(Ordering::SeqCst) => {}
            Outcome::Failed { error } => {
                return Err(format!("a run of conversation {conversation} failed: {error}"));
            }
        }
    }
    Ok(())
}

async fn run_once(
    has_crashed: &AtomicBool,
    (shared, stack, store): &(SharedState, Stack, SharedStore),
    answers: &watch::Sender<u64>,
    (conversation, seed): (u32, u64),
    is_unstable: bool,
) -> Outcome {
    let (turn, run) = {
        let mut state = shared.state();
        state.requests += 1;
        match state.models.get_mut(conversation as usize) {
            Some(model) => model.begin(seed % 2 == 0, |turn| Plan::of(stack.seed, turn).mode),
            None => return Outcome::Dropped,
        }
    };
    shared.state().in_flight.insert(turn);
    let job = Job { turn, run, seed, is_unstable };
    let outcome = stack.send(store.clone(), &job).await;
    if outcome == Outcome::Dropped && !has_crashed.load(Ordering::SeqCst) {
        // The next request must read what this run has submitted. The flush fails while the server
        // is stopped.
        drop(store.flush().await);
    }
    let mut state = shared.state();
    state.in_flight.remove(&turn);
    match &outcome {
        Outcome::Answered { .. } => {
            state.acknowledged.insert(turn, Instant::now());
            answers.send_modify(|count| *count += 1);
        }
        Outcome::Failed { error } => {
            state.failed += 1;
            state.conflicts += u64::from(error.contains("was changed by another run"));
        }
        Outcome::Dropped => {}
    }
    if let Some(model) = state.models.get_mut(conversation as usize) {
        model.end(Some(&outcome));
    }
    outcome
}
