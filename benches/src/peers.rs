//! `peers`: what `benches/peers` compares with other frameworks, on SQLite in per-service-call
//! mode.
//!
//! A whole run of 20 tool rounds with its load at the beginning, divided by its 21 service calls.
//! Store `cached` is a [`CachingStore`] that has read the conversation just before, `sqlite` a
//! handle that has not seen it.
//!
//! Floor: the appends of such a run on a bare connection, after the load where the store has to
//! read.

use std::{hint::black_box, sync::Arc, time::Instant};

use tower_chat::{BoxError, PersistenceMode, store::HistoryStore};
use tower_chat_cache::CachingStore;
use tower_chat_sqlite::Durability;

use crate::{
    Effort,
    bare::Bare,
    files::{self, DURABILITIES, Files},
    report::{Line, Samples, us_since},
    rows::BareAppend,
    workload::{self, CALLS, Model},
};

const HISTORIES: [usize; 3] = [0, 1000, 10_000];
const STORES: [(&str, bool); 2] = [("cached", true), ("sqlite", false)];

/// What is measured at once.
#[derive(Debug, Clone, Copy)]
struct Measured {
    durability: (&'static str, Durability),
    history: usize,
    store: (&'static str, bool),
}

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for durability in DURABILITIES {
        for history in HISTORIES {
            for store in STORES {
                let measured = Measured { durability, history, store };
                let runs = effort.repetitions(20);
                let (ours, floor) = runtime.block_on(measured.runs(runs))?;
                let (us, floor) = (ours.median(), floor.median());
                let line = Line::new("peers", "per_service_call", store.0, history, us, floor);
                Line { durability: Some(durability.0), ..line }.print()?;
            }
        }
    }
    Ok(())
}

impl Measured {
    /// Runs each conversation once; the times of runs and of the floor, divided by the service
    /// calls.
    async fn runs(self, runs: usize) -> Result<(Samples, Samples), BoxError> {
        let (_, is_cached) = self.store;
        let files = Files::make(self.durability.1, runs, self.history).await?;
        let store: Arc<dyn HistoryStore> = match is_cached {
            true => Arc::new(CachingStore::new(files.store.clone())),
            false => Arc::new(files.store.clone()),
        };
        let floor = Floor { appends: BareAppend::of_each_call(), load: !is_cached };
        let model = Model::default();
        let mode = PersistenceMode::PerServiceCall;
        let pipeline = workload::pipeline(&model, Some((store.clone(), mode)))?;
        let (mut ours, mut floors) = (Samples::default(), Samples::default());
        for run in 0..runs {
            let key = files::key(run);
            if is_cached && store.load(&key).await?.messages.len() != self.history {
                return Err("messages are missing before the run".into());
            }
            // What a disk does after one sync may not be what it does after the other.
            let is_floor_first = run % 2 == 1;
            if is_floor_first {
                floors.add(floor.run(&files.floor(), run, self.history)?);
            }
            model.prepare(CALLS - 1);
            let request = workload::input().in_conversation(key.clone());
            let (mut pipeline, model) = (pipeline.clone(), model.clone());
            self.mark("begins");
            let task = tokio::spawn(async move {
                let start = Instant::now();
                workload::run(&mut pipeline, &model, request, CALLS).await?;
                Ok::<_, BoxError>(us_since(start))
            });
            let us = task.await??;
            self.mark("ends");
            ours.add(us / CALLS as f64);
            if !is_floor_first {
                floors.add(floor.run(&files.floor(), run, self.history)?);
            }
            if store.load(&key).await?.messages.len() != self.history + 2 * CALLS {
                return Err("messages are missing after the run".into());
            }
        }
        Ok((ours, floors))
    }

    /// Asks for a file that is not there, so that whoever traces system calls finds the run.
    fn mark(self, what: &str) {
        let Self { durability: (durability, _), history, store: (store, _) } = self;
        let path = format!("/measured-run-{what}/{durability}-{store}-{history}");
        black_box(std::fs::exists(path).is_ok());
    }
}

/// One run on the bare connection.
struct Floor {
    appends: Vec<BareAppend>,
    /// Whether the history is read at the beginning.
    load: bool,
}

impl Floor {
    /// The time for each service call.
    fn run(&self, bare: &Bare, run: usize, history: usize) -> Result<f64, BoxError> {
        let key = files::key(run);
        let mut conversation = bare.conversation(&key)?;
        let start = Instant::now();
        if self.load && black_box(bare.load(&key)?).len() != history {
            return Err("messages are missing".into());
        }
        for append in &self.appends {
            bare.append(&mut conversation, append)?;
        }
        Ok(us_since(start) / CALLS as f64)
    }
}
