//! `postgres`: per-service-call mode with a PostgreSQL store behind a cache, on a multi-thread
//! runtime, against a throwaway server whose data lie on a disk.
//!
//! The time from one answer of the model to the next question to it: tool loop, persistence and one
//! append. The first service call of each run is left out, since it is the first to a conversation.
//! The durability `full` is PostgreSQL's default, `off` is `synchronous_commit = off`: nobody waits
//! for the disk, so it shows everything else.
//!
//! Floor: one statement of one round trip with the same rows, into the same tables, on one reused
//! connection of the same client: a result, the next call, and a record of each. It checks no
//! revision and touches no conversation's row. As many are made after each run, or before it, in
//! turns. Bound with durability `full`: at most 1.7 times that, and within 1.25 times of one another at
//! every length of history.
//!
//! Bytes are those of the server's log, the middle of all runs. Syncs are the server's own count of
//! those of its log, over runs that are made afterwards for that alone.

mod bare;
pub(crate) mod server;

use std::{sync::Arc, time::Instant};

use tower_chat::{
    BoxError, ChatPipeline, ConversationKey, PersistenceMode, store::HistoryStore as _,
};
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

/// Runs whose syncs are counted.
const COUNTED_RUNS: usize = 2;

/// A conversation takes so many runs that it grows by less than this part of its history.
const MOST_GROWTH: usize = 10;

/// The durabilities with their names in the output, and what is set for them.
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

/// A scope, in which the conversations of one side lie.
const OURS: &str = "benches";
const FLOOR: &str = "floor";

async fn measure_runs(
    server: &PostgresServer,
    address: &str,
    schema: &str,
    history: usize,
    runs: usize,
) -> Result<Measured, BoxError> {
    let runs_of_each = (history / MOST_GROWTH / (2 * CALLS)).max(1);
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
        // What a disk does after one sync may not be what it does after the other.
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

/// How often the server syncs its log for a service call, where nobody else is connected. What a
/// connection did is known for certain once it is closed.
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

/// The times of the service calls of a run, but for the first.
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

/// The times of as many appends on the bare connection.
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
