//! `per_run`: a whole run of 20 tool rounds in per-run mode with a SQLite store, divided by its 21
//! service calls: one load of everything stored and one append of everything new.
//!
//! Floor: the same load and the same append on a bare connection, divided alike.

use std::{hint::black_box, sync::Arc, time::Instant};

use tower_chat::{
    PersistenceMode,
    core::{BoxError, format},
};
use tower_chat_sqlite::Durability;

use crate::{
    Effort,
    bare::{BareConversation, BareRecord},
    files::{self, DURABILITIES, Files},
    report::{Line, Samples, us_since},
    workload::{self, CALLS, Leaf},
};

const HISTORIES: [usize; 2] = [0, 10_000];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for (name, durability) in DURABILITIES {
        for history in HISTORIES {
            let runs = effort.repetitions(40);
            let (ours, floor) = runtime.block_on(measure_runs(durability, history, runs))?;
            let (us, floor) = (ours.median(), floor.median());
            let line = Line::new("per_run", "per_run", "sqlite", history, us, floor);
            Line { durability: Some(name), ..line }.print()?;
        }
    }
    Ok(())
}

/// Runs each conversation once; the times of runs and of the floor, divided by the service calls.
async fn measure_runs(
    durability: Durability,
    history: usize,
    runs: usize,
) -> Result<(Samples, Samples), BoxError> {
    let Files { store, bare, folder } = Files::make(durability, runs, history).await?;
    let leaf = Leaf::default();
    let pipeline = workload::pipeline(&leaf, Some((Arc::new(store), PersistenceMode::PerRun)))?;
    let bodies: Vec<String> =
        workload::messages_of_run().iter().map(|message| format::encode(message)).collect();
    let records: Vec<BareRecord> = (0..CALLS - 1)
        .map(|round| {
            let call = i64::try_from(1 + 2 * round)?;
            Ok(BareRecord { call, result: Some(call + 1) })
        })
        .collect::<Result<_, BoxError>>()?;
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for run in 0..runs {
        let mut measure_floor = || {
            let mut conversation = BareConversation::new(files::key(run), history)?;
            let start = Instant::now();
            let read = black_box(bare.load(&files::key(run))?);
            bare.append(&mut conversation, &bodies, &records)?;
            floor.add(us_since(start) / CALLS as f64);
            if read.len() == history { Ok(()) } else { Err(BoxError::from("messages are missing")) }
        };
        // What a disk does after one sync may not be what it does after the other.
        let is_floor_first = run % 2 == 1;
        if is_floor_first {
            measure_floor()?;
        }
        leaf.prepare(CALLS - 1);
        let request = workload::input().in_conversation(files::key(run));
        let (mut pipeline, model) = (pipeline.clone(), leaf.clone());
        let task = tokio::spawn(async move {
            let start = Instant::now();
            workload::run(&mut pipeline, &model, request, CALLS).await?;
            Ok::<_, BoxError>(us_since(start))
        });
        ours.add(task.await?? / CALLS as f64);
        if !is_floor_first {
            measure_floor()?;
        }
    }
    drop(folder);
    Ok((ours, floor))
}
