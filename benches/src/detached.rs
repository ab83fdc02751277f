//! `detached`: detached runs, each in its own task. All runs append their updates to one update log
//! in a SQLite file, from which clients read the updates.
//!
//! 64 runs receive 50 tokens a second each. The field `mode` of a printed line is one of:
//!
//! - `appends`: the number of appends to the update log for each run and second, with the default
//!   settings. Bound: 1.1. The last message and the end of a run are appended immediately, which
//!   adds at most 2 appends to each run.
//! - `appends_durable`: the same with `durable_delivery`. Bound: 4.1.
//! - `update`: the processor time that the layer for detached runs adds to an update. The same runs
//!   are measured with and without the layer, and the model sends its tokens without a pause.
//!   Bound: 2 us.
//! - `update_paced`: the same as `update`, but the model sends 50 tokens a second, and each append
//!   contains 50 updates.
//! - `commits`: the median time of a commit while the runs are in progress, divided by the median
//!   time of a commit without runs. The commits write, with full durability, to a history in
//!   another file of the same folder. Bound: 1.1.

use std::{
    future::ready,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, Finish,
    HistoryStore, MemoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{Revision, author::Write},
};
use tower_chat_delivery::{
    DetachedRunsLayer, Erase, Renewed, RunEnd, RunKey, RunState, SqliteUpdateLog, StoredUpdate,
    UpdateLog, UpdateLogError, UpdatePage, UpdatePosition,
};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{
    Effort, files,
    report::{Samples, rounded, us_since},
    workload,
};

const RUNS: usize = 64;
const TOKENS_PER_SECOND: usize = 50;
/// The number of commits in each phase of `commits`.
const COMMITS: usize = 200;

/// A line of the output.
#[derive(Serialize)]
struct Figure {
    case: &'static str,
    mode: &'static str,
    runs: usize,
    value: f64,
    unit: &'static str,
    bound: f64,
}

#[derive(Debug, Clone)]
struct Tokens {
    count: usize,
    /// The time between two tokens.
    interval: Duration,
    /// If this is true, all responses end before their last token.
    is_ended: Arc<AtomicBool>,
}

impl Tokens {
    fn paced(seconds: usize) -> Self {
        let interval = Duration::from_secs(1) / u32::try_from(TOKENS_PER_SECOND).unwrap_or(1);
        Self { count: TOKENS_PER_SECOND * seconds, interval, is_ended: Arc::default() }
    }

    fn at_once(count: usize) -> Self {
        Self { count, interval: Duration::ZERO, is_ended: Arc::default() }
    }
}

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure_all(effort))
}

async fn measure_all(effort: Effort) -> Result<(), BoxError> {
    let seconds = effort.repetitions(30);
    print("appends", appends(seconds, false).await?, "appends/s", 1.1)?;
    print("appends_durable", appends(seconds, true).await?, "appends/s", 4.1)?;
    let at_once = Tokens::at_once(effort.repetitions(2000));
    print("update", update(at_once, effort.repetitions(5)).await?, "us", 2.0)?;
    let paced = Tokens::paced(effort.repetitions(10));
    print("update_paced", update(paced, effort.repetitions(3)).await?, "us", 2.0)?;
    print("commits", commits(effort.repetitions(9)).await?, "ratio", 1.1)
}

fn print(mode: &'static str, value: f64, unit: &'static str, bound: f64) -> Result<(), BoxError> {
    let value = rounded(value);
    let figure = Figure { case: "detached", mode, runs: RUNS, value, unit, bound };
    println!("{}", serde_json::to_string(&figure)?);
    Ok(())
}

/// Returns the number of appends to the update log for each run and second.
async fn appends(seconds: usize, is_durable: bool) -> Result<f64, BoxError> {
    let folder = tempfile::tempdir_in(files::build_folder()?)?;
    let log = CountingLog::open(folder.path()).await?;
    let appends = log.appends.clone();
    let runs = DetachedRunsLayer::new(log);
    let runs = if is_durable { runs.durable_delivery() } else { runs };
    execute(runs.layer(pipeline(&Tokens::paced(seconds))?)).await?;
    runs.drained().await;
    Ok(appends.load(Ordering::Relaxed) as f64 / (RUNS * seconds) as f64)
}

/// Returns the median processor time that the layer for detached runs adds to an update, in
/// microseconds.
async fn update(tokens: Tokens, repetitions: usize) -> Result<f64, BoxError> {
    let folder = tempfile::tempdir_in(files::build_folder()?)?;
    let runs = DetachedRunsLayer::new(CountingLog::open(folder.path()).await?);
    let mut added = Samples::default();
    for _ in 0..repetitions {
        let before = processor_time();
        execute(pipeline(&tokens)?).await?;
        let between = processor_time();
        execute(runs.layer(pipeline(&tokens)?)).await?;
        runs.drained().await;
        let with = processor_time() - between;
        let without = between - before;
        added.add((with - without) * 1e6 / (RUNS * tokens.count) as f64);
    }
    Ok(added.median())
}

/// Returns the ratio of `commits`.
async fn commits(rounds: usize) -> Result<f64, BoxError> {
    let folder = tempfile::tempdir_in(files::build_folder()?)?;
    let options = SqliteStore::options().with_durability(Durability::Full);
    let store = options.open(folder.path().join("histories.db")).await?;
    let runs = DetachedRunsLayer::new(CountingLog::open(folder.path()).await?);
    let (mut alone, mut beside) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        alone.append(commit(&store, 2 * round).await?);
        let tokens = Tokens::paced(3600);
        let is_ended = tokens.is_ended.clone();
        let callers = tokio::spawn(execute(runs.layer(pipeline(&tokens)?)));
        // After this time, all runs are appending their updates.
        tokio::time::sleep(Duration::from_secs(2)).await;
        beside.append(commit(&store, 2 * round + 1).await?);
        is_ended.store(true, Ordering::Relaxed);
        callers.await??;
        runs.drained().await;
    }
    store.close().await?;
    Ok(beside.median() / alone.median())
}

/// Appends to one conversation in consecutive commits, and returns their times in microseconds.
async fn commit(store: &SqliteStore, number: usize) -> Result<Samples, BoxError> {
    let messages: [Arc<Message>; 2] =
        [workload::result_message(0).into(), workload::call_message(1).into()];
    let mut id = MessageId { run: RunId::new(), index: 0 };
    let mut revision = Revision::ABSENT;
    let mut samples = Samples::default();
    for _ in 0..COMMITS {
        let start = Instant::now();
        let slot = store.reserve().await?;
        let write = Write::new(files::key(number), id, revision, messages.clone());
        revision = store.append(slot, vec![write]).await?;
        samples.add(us_since(start));
        id.index += 2;
    }
    Ok(samples)
}

async fn execute<S>(stack: S) -> Result<(), BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    let mut callers = JoinSet::new();
    for run in 0..RUNS {
        let key = ConversationKey::new("detached", format!("{run}-{}", RunId::new()));
        let request = ChatRequest::user("Tell me a story.").in_conversation(key).streamed();
        let stack = stack.clone();
        callers.spawn(async move {
            let mut response = stack.oneshot(request).await.map_err(Into::into)?;
            while let Some(update) = response.next().await {
                update?;
            }
            Ok::<(), BoxError>(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

/// Creates a pipeline with a model that sends these tokens.
fn pipeline(tokens: &Tokens) -> Result<ChatPipeline, BoxError> {
    let tokens = tokens.clone();
    let model = service_fn(move |_: ChatRequest| {
        let tokens = tokens.clone();
        async move { Ok::<_, BoxError>(response(tokens)) }
    });
    Ok(ChatPipeline::builder(model).history(MemoryStore::new()).build()?)
}

fn response(tokens: Tokens) -> ChatResponse {
    let Tokens { count, interval, is_ended } = tokens;
    let began = tokio::time::Instant::now();
    let texts = stream::iter(0..count)
        .take_while(move |_| ready(!is_ended.load(Ordering::Relaxed)))
        .then(move |index| async move {
            if !interval.is_zero() {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                tokio::time::sleep_until(began + interval * index).await;
            }
            Ok(ChatUpdate::TextDelta("token ".to_owned()))
        });
    let finish = stream::iter([Ok(ChatUpdate::Finish(Finish::stop().into()))]);
    ChatResponse::stream(texts.chain(finish))
}

fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// An update log in a SQLite file, which counts its appends.
struct CountingLog {
    log: SqliteUpdateLog,
    appends: Arc<AtomicUsize>,
}

impl CountingLog {
    async fn open(folder: &Path) -> Result<Self, BoxError> {
        let log = SqliteUpdateLog::open(folder.join("updates.db")).await?;
        Ok(Self { log, appends: Arc::default() })
    }
}

#[async_trait]
impl UpdateLog for CountingLog {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        self.log.begin(run, attempt, lease).await
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.log.append(run, first, updates, end).await
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        self.log.renew(run, attempt, lease).await
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        self.log.read(run, after, limit).await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        self.log.interrupt(run).await
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        self.log.request_stop(run).await
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        self.log.erase(what).await
    }
}
