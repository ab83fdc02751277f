//! `modes`: what a run of 20 tool rounds costs in each persistence mode, on SQLite.
//!
//! The whole run with its load, after 1,000 stored messages, divided by its 21 service calls, and
//! the durable appends it makes. A journaled run makes one for its input, one for each service call
//! and one for each tool; per service call it is one for each service call.
//!
//! Floor: per-service-call mode. Each mode runs conversations of its own, in turns.

use std::{sync::Arc, time::Instant};

use tower_chat::{ChatPipeline, PersistenceMode, core::BoxError};
use tower_chat_sqlite::SqliteStore;

use crate::{
    Effort,
    files::{self, DURABILITIES, Files},
    report::{Line, Samples, us_since},
    workload::{self, CALLS, Leaf},
};

const HISTORY: usize = 1000;
const FLOOR: &str = "per_service_call";
const MODES: [(&str, PersistenceMode); 3] = [
    ("per_run", PersistenceMode::PerRun),
    (FLOOR, PersistenceMode::PerServiceCall),
    ("journaled", PersistenceMode::Journaled),
];

struct Measured {
    mode: &'static str,
    pipeline: ChatPipeline,
    samples: Samples,
    appends: u64,
}

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    for (name, durability) in DURABILITIES {
        let rounds = effort.repetitions(20);
        let conversations = rounds * MODES.len();
        let Files { store, bare: _, folder } =
            runtime.block_on(Files::make(durability, conversations, HISTORY))?;
        let store = Arc::new(store);
        let leaf = Leaf::default();
        let mut measured = Vec::new();
        for (mode, persistence) in MODES {
            let pipeline = workload::pipeline(&leaf, Some((store.clone(), persistence)))?;
            measured.push(Measured { mode, pipeline, samples: Samples::default(), appends: 0 });
        }
        for conversation in 0..conversations {
            let place = conversation % MODES.len();
            let Some(measured) = measured.get_mut(place) else { continue };
            runtime.block_on(measured.sample(&store, &leaf, conversation))?;
        }
        let is_floor = |measured: &&Measured| measured.mode == FLOOR;
        let floor = measured.iter().find(is_floor).map_or(f64::NAN, |it| it.samples.median());
        for Measured { mode, samples, appends, .. } in &measured {
            let line = Line::new("modes", mode, "sqlite", HISTORY, samples.median(), floor);
            let appends_per_call = Some(*appends as f64 / (rounds * CALLS) as f64);
            Line { durability: Some(name), appends_per_call, ..line }.print()?;
        }
        drop(folder);
    }
    Ok(())
}

impl Measured {
    async fn sample(
        &mut self,
        store: &SqliteStore,
        leaf: &Leaf,
        conversation: usize,
    ) -> Result<(), BoxError> {
        let before = store.statistics().writes;
        leaf.prepare(CALLS - 1);
        let request = workload::input().in_conversation(files::key(conversation));
        let (mut pipeline, model) = (self.pipeline.clone(), leaf.clone());
        let run = tokio::spawn(async move {
            let start = Instant::now();
            workload::run(&mut pipeline, &model, request, CALLS).await?;
            Ok::<_, BoxError>(us_since(start))
        });
        self.samples.add(run.await?? / CALLS as f64);
        self.appends += store.statistics().writes - before;
        Ok(())
    }
}
