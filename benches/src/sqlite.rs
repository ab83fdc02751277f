//! `sqlite`: a run of 20 tool rounds in each persistence mode, with a cached SQLite store, on a
//! multi-thread runtime.
//!
//! Each mode is compared with a floor: a bare SQLite connection that writes the same rows. Before a
//! run, the conversation is in the cache, as after an earlier run. All modes use the same file in
//! turn.
//!
//! - `per_service_call`, `journaled`: the time from an answer of the model to the next service
//!   call, or to the end of the run. This time includes the tool loop and the durable writes. The
//!   first service call also includes the beginning of the run. The floor is one transaction for
//!   each service call: two messages, the row of the finished tool call and the row of the new tool
//!   call. A journaled run makes two durable writes for each service call: one for the answer, and
//!   one for the outcome of the tool.
//! - `per_run`: the time of the complete run divided by its 21 service calls. The floor is one
//!   transaction with all rows of the run, divided in the same way.
//!
//! Bounds in per-service-call mode: 1.3 times the floor with full durability, 2.2 times the floor
//! with normal durability, and 1.3 times the bytes of the floor. Each bound applies to every length
//! of history. The longest and the shortest time of all lengths differ by a factor of at most 1.2.

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tower_chat::{BoxError, ChatPipeline, ConversationKey, HistoryStore, PersistenceMode};
use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{
    Effort,
    bare::{Bare, BareConversation},
    files::{self, DURABILITIES, Files, Template},
    report::{Line, Samples, Written, us_between, us_since},
    rows::BareAppend,
    workload::{self, CALLS, Model},
    written::Syncs,
};

/// Lengths of history, each with the number of conversations that the runs use in turn. If the
/// number is 0, each run creates a new conversation.
const HISTORIES: [(usize, usize); 4] = [(0, 0), (1000, 12), (10_000, 6), (100_000, 1)];

/// The number of repetitions of the whole measurement, each on its own files. With only one
/// repetition, the ratio of the medians is uncertain by one percent, which is too much for the
/// bound of full durability.
const COPIES: usize = 3;

/// The longest history of a quick measurement, since longer ones take long to create.
const LONGEST_OF_QUICK: usize = 1000;

/// The number of runs of each mode while bytes are counted. More runs could cause a checkpoint.
const COUNTED_RUNS: usize = 2;

const MODES: [(&str, PersistenceMode); 3] = [
    ("per_run", PersistenceMode::PerRun),
    ("per_service_call", PersistenceMode::PerServiceCall),
    ("journaled", PersistenceMode::Journaled),
];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    let copies = if effort == Effort::Quick { 1 } else { COPIES };
    for (history, conversations) in HISTORIES {
        if effort == Effort::Quick && history > LONGEST_OF_QUICK {
            continue;
        }
        let template = runtime.block_on(Template::make(conversations, history))?;
        for (name, durability) in DURABILITIES {
            let repetitions = effort.repetitions(40);
            let measure_copy = || {
                runtime.block_on(async {
                    let bench = Bench::new(&template, durability, conversations).await?;
                    bench.measure(repetitions).await
                })
            };
            let mut measured = measure_copy()?;
            for _ in 1..copies {
                for ((mode, _), (more, _)) in measured.iter_mut().zip(measure_copy()?) {
                    mode.ours.append(more.ours);
                    mode.floor.append(more.floor);
                }
            }
            for (Measured { mode, ours, floor, .. }, written) in measured {
                let line =
                    Line::new("sqlite", mode, "sqlite", history, ours.median(), floor.median());
                Line { durability: Some(name), ..line }.with_written(written).print()?;
            }
        }
    }
    Ok(())
}

/// A store, the bare connection, and the scripted model of the runs.
struct Bench {
    files: Files,
    store: Arc<CachingStore<SqliteStore>>,
    floor: Arc<Mutex<Floor>>,
    model: Model,
    durability: Durability,
    conversations: usize,
    /// The number of runs so far.
    runs: usize,
}

struct Measured {
    mode: &'static str,
    persistence: PersistenceMode,
    pipeline: ChatPipeline,
    ours: Samples,
    floor: Samples,
    syncs: u64,
}

/// The bare connection. During each service call, the model executes one transaction on it.
struct Floor {
    bare: Arc<Mutex<Bare>>,
    conversation: Option<BareConversation>,
    /// The remaining transactions of the run.
    appends: VecDeque<BareAppend>,
    times: Vec<f64>,
}

struct Times {
    ours: Vec<f64>,
    floor: Vec<f64>,
}

impl Bench {
    async fn new(
        template: &Template,
        durability: Durability,
        conversations: usize,
    ) -> Result<Self, BoxError> {
        let files = template.copies(durability).await?;
        let options = CacheOptions::new().with_revalidation(Revalidation::Never);
        let store = Arc::new(CachingStore::with_options(files.store.clone(), options));
        let floor = Arc::new(Mutex::new(Floor::new(files.floor.clone())));
        let model = Model::default();
        model.do_between({
            let floor = floor.clone();
            move |_| locked(&floor).append()
        });
        Ok(Self { files, store, floor, model, durability, conversations, runs: 0 })
    }

    async fn measure(mut self, repetitions: usize) -> Result<Vec<(Measured, Written)>, BoxError> {
        let mut modes = Vec::new();
        for (mode, persistence) in MODES {
            let pipeline =
                workload::pipeline(&self.model, Some((self.store.clone(), persistence)))?;
            let (ours, floor) = (Samples::default(), Samples::default());
            modes.push(Measured { mode, persistence, pipeline, ours, floor, syncs: 0 });
        }
        for _ in 0..repetitions {
            for mode in &mut modes {
                let before = Syncs::until_now(&self.files.store, &self.files.log)?;
                let times = self.run(mode).await?;
                let after = Syncs::until_now(&self.files.store, &self.files.log)?;
                mode.syncs += after.since(before, self.durability)?;
                mode.add(&times);
            }
        }
        let mut measured = Vec::new();
        for mut mode in modes {
            self.files.empty_logs().await?;
            for _ in 0..COUNTED_RUNS {
                self.run(&mut mode).await?;
            }
            let per_call = |bytes| bytes as f64 / (COUNTED_RUNS * CALLS) as f64;
            let written = Written {
                bytes: per_call(self.files.log.bytes()?),
                floor_bytes: per_call(self.files.floor_log.bytes()?),
                fsyncs: mode.syncs as f64 / (repetitions * CALLS) as f64,
            };
            measured.push((mode, written));
        }
        self.files.compare()?;
        Ok(measured)
    }

    /// Executes a run in the next conversation, and writes the same rows through the bare
    /// connection.
    async fn run(&mut self, mode: &mut Measured) -> Result<Times, BoxError> {
        let key = files::key(self.runs.checked_rem(self.conversations).unwrap_or(self.runs));
        self.runs += 1;
        self.store.head(&key).await?;
        self.store.load(&key).await?;
        locked(&self.floor).prepare(&key, mode.persistence)?;
        self.model.prepare(CALLS - 1);
        let request = workload::input().in_conversation(key);
        let (mut pipeline, model) = (mode.pipeline.clone(), self.model.clone());
        let run = tokio::spawn(async move {
            let begin = Instant::now();
            workload::run(&mut pipeline, &model, request, CALLS).await?;
            Ok::<_, BoxError>((begin, Instant::now()))
        });
        let (begin, end) = run.await??;
        let calls = self.model.calls();
        let next = calls.iter().map(|(began, _)| *began).skip(1).chain([end]);
        let mut ours: Vec<f64> = calls
            .iter()
            .zip(next)
            .map(|((_, answered), next)| us_between(*answered, next))
            .collect();
        if let (Some(first), Some((began, _))) = (ours.first_mut(), calls.first()) {
            *first += us_between(begin, *began);
        }
        let floor = mem::take(&mut locked(&self.floor).times);
        Ok(Times { ours, floor })
    }
}

impl Measured {
    fn add(&mut self, times: &Times) {
        match self.persistence {
            PersistenceMode::PerRun => {
                self.ours.add(times.ours.iter().sum::<f64>() / CALLS as f64);
                self.floor.add(times.floor.iter().sum::<f64>() / CALLS as f64);
            }
            _ => {
                self.ours.extend(times.ours.iter().copied());
                self.floor.extend(times.floor.iter().copied());
            }
        }
    }
}

impl Floor {
    fn new(bare: Arc<Mutex<Bare>>) -> Self {
        Self { bare, conversation: None, appends: VecDeque::new(), times: Vec::new() }
    }

    /// Sets the conversation and the transactions of the next run.
    fn prepare(
        &mut self,
        key: &ConversationKey,
        persistence: PersistenceMode,
    ) -> Result<(), BoxError> {
        self.conversation = Some(locked(&self.bare).conversation(key)?);
        self.appends = match persistence {
            PersistenceMode::PerRun => [BareAppend::of_run()].into(),
            _ => BareAppend::of_each_call().into(),
        };
        self.times.clear();
        Ok(())
    }

    /// Executes and measures the next transaction, if any.
    fn append(&mut self) -> Result<(), BoxError> {
        let conversation = self.conversation.as_mut().ok_or("no conversation to append to")?;
        let Some(append) = self.appends.pop_front() else { return Ok(()) };
        let bare = locked(&self.bare);
        let start = Instant::now();
        bare.append(conversation, &append)?;
        self.times.push(us_since(start));
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
