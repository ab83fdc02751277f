//! `postgres`: per-service-call mode with a PostgreSQL store behind a cache, on a multi-thread
//! runtime, with a temporary server whose data are on a disk.
//!
//! The measured time begins with an answer of the model and ends with the next service call. It
//! includes the tool loop, persistence and one append. The first service call of each run is
//! omitted, because its append may create the conversation. The durability `full` is the default of
//! PostgreSQL. With `off` (`synchronous_commit = off`), no commit waits for the disk.
//!
//! Floor: a bare connection writes the same rows in one round trip: a result, the next call, and a
//! row about each of the two calls. Its statement does not check whether another writer has changed
//! the conversation, and does not update the row of the conversation. The floor is measured
//! alternately before and after a run, with as many statements as the run makes appends. Bound with
//! durability `full`: at most 1.7 times the floor. The longest and the shortest time of all lengths
//! of history differ by a factor of at most 1.25.
//!
//! The written bytes are the growth of the server's log, as the median of all runs. The syncs of
//! this log are counted by the server, in additional runs after the measurement of the times.

mod bare;
pub(crate) mod server;

use std::{sync::Arc, time::Instant};

use tower_chat::{BoxError, ChatPipeline, ConversationKey, HistoryStore as _, PersistenceMode};
use tower_chat_cache::{CacheOptions, CachingStore, Revalidation};
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::server::PostgresServer;

use self::bare::{Bare, BareConversation};
use crate::{
    Effort,
    report::{Line, Samples, rounded, us_between, us_since},
    workload::{self, CALLS, Model},
};

const HISTORIES: [usize; 4] = [0, 1000, 10_000, 100_000];

/// The number of runs whose syncs are counted.
const COUNTED_RUNS: usize = 2;

/// The runs in one conversation may add one message for this number of stored messages. A single
/// run is always allowed.
const MAX_GROWTH: usize = 10;

/// The durabilities with their names in the output, and the settings of their connections.
pub(crate) const DURABILITIES: [(&str, &str); 2] =
    [("full", "synchronous_commit=on"), ("off", "synchronous_commit=off")];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let Some(server) = server::start()? else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for (name, setting) in DURABILITIES {
        let address = server::address(&server, setting);
        for history in HISTORIES {
            if effort == Effort::Quick && history > 1000 {
                continue;
            }
            let runs = effort.repetitions(40);
            let schema = format!("{name} {history}");
            let measured =
                runtime.block_on(measure_runs(&server, &address, &schema, history, runs))?;
            let (us, floor) = (measured.ours.median(), measured.floor.median());
            let line = Line::new("postgres", "per_service_call", "postgres", history, us, floor);
            Line {
                durability: Some(name),
                bytes_written_per_call: Some(measured.bytes.median().round()),
                floor_bytes: Some(measured.floor_bytes.median().round()),
                fsyncs_per_call: Some(rounded(measured.syncs_per_call)),
                ..line
            }
            .print()?;
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Measured {
    ours: Samples,
    floor: Samples,
    bytes: Samples,
    floor_bytes: Samples,
    syncs_per_call: f64,
}

/// The scopes of the conversations of the store and of the floor.
const OURS: &str = "benches";
const FLOOR: &str = "floor";

async fn measure_runs(
    server: &PostgresServer,
    address: &str,
    schema: &str,
    history: usize,
    runs: usize,
) -> Result<Measured, BoxError> {
    let runs_of_each = (history / MAX_GROWTH / (2 * CALLS)).max(1);
    let store = server::store(address, schema).await?;
    for conversation in 0..runs.div_ceil(runs_of_each) {
        for scope in [OURS, FLOOR] {
            server::fill(&store, &key(scope, conversation), history).await?;
        }
    }
    let model = Model::default();
    let pipeline = pipeline(&model, store.clone())?;
    let mut bare = Bare::connect(address, schema).await?;
    let log = server::Log::connect(server).await?;
    log.checkpoint().await?;

    let mut measured = Measured::default();
    let mut to = BareConversation::new(key(FLOOR, 0), history)?;
    for run in 0..runs {
        let conversation = run / runs_of_each;
        if run % runs_of_each == 0 {
            to = BareConversation::new(key(FLOOR, conversation), history)?;
        }
        to.begin_run();
        // The order alternates, since a disk may behave differently directly after a sync.
        let is_floor_first = run % 2 == 1;
        for is_floor in [is_floor_first, !is_floor_first] {
            let start = log.position().await?;
            if is_floor {
                let appends = append(bare, to);
                let times;
                (bare, to, times) = tokio::spawn(appends).await??;
                let bytes = log.bytes_since(start).await?;
                measured.floor_bytes.add(bytes / times.len() as f64);
                measured.floor.extend(times.into_iter().skip(1));
            } else {
                let times = tokio::spawn(run_once(
                    pipeline.clone(),
                    model.clone(),
                    key(OURS, conversation),
                ))
                .await??;
                measured.bytes.add(log.bytes_since(start).await? / CALLS as f64);
                measured.ours.extend(times);
            }
        }
    }
    drop((bare, pipeline, store));
    measured.syncs_per_call = syncs_per_call(address, schema, &log, key(OURS, runs)).await?;
    Ok(measured)
}

/// Returns the number of syncs of the server's log for each service call. The server publishes the
/// counts of a connection when the connection is closed. The function therefore closes its own
/// store and waits for all other clients to disconnect before it reads the count.
async fn syncs_per_call(
    address: &str,
    schema: &str,
    log: &server::Log,
    key: ConversationKey,
) -> Result<f64, BoxError> {
    log.wait_for_others_to_go().await?;
    let before = log.syncs().await?;
    let model = Model::default();
    let store = server::store(address, schema).await?;
    for _ in 0..COUNTED_RUNS {
        run_once(pipeline(&model, store.clone())?, model.clone(), key.clone()).await?;
    }
    store.close().await?;
    drop(store);
    log.wait_for_others_to_go().await?;
    Ok((log.syncs().await? - before) as f64 / (COUNTED_RUNS * CALLS) as f64)
}

fn pipeline(model: &Model, store: PostgresStore) -> Result<ChatPipeline, BoxError> {
    let cache = CacheOptions::new().with_revalidation(Revalidation::Never);
    let store = Arc::new(CachingStore::with_options(store, cache));
    workload::pipeline(model, Some((store, PersistenceMode::PerServiceCall)))
}

async fn run_once(
    mut pipeline: ChatPipeline,
    model: Model,
    key: ConversationKey,
) -> Result<Vec<f64>, BoxError> {
    model.prepare(CALLS - 1);
    let request = workload::input().in_conversation(key);
    workload::run(&mut pipeline, &model, request, CALLS).await?;
    let end = Instant::now();
    let calls = model.calls();
    let next = calls.iter().map(|(began, _)| *began).skip(1).chain([end]);
    let times = calls.iter().zip(next).skip(1);
    Ok(times.map(|((_, answered), next)| us_between(*answered, next)).collect())
}

async fn append(
    bare: Bare,
    mut to: BareConversation,
) -> Result<(Bare, BareConversation, Vec<f64>), BoxError> {
    let bodies = bare::bodies();
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let start = Instant::now();
        bare.append(&mut to, &bodies).await?;
        times.push(us_since(start));
    }
    Ok((bare, to, times))
}

fn key(scope: &str, conversation: usize) -> ConversationKey {
    ConversationKey::new(scope, format!("conversation-{conversation}"))
}
