//! `sqlite`: per-service-call mode with a SQLite store, on a multi-thread runtime.
//!
//! The time from one answer of the model to the next question to it: tool loop, persistence and one
//! durable append. The first service call of each run is left out, since it waits for the load of
//! the history; the case `cold_load` measures that.
//!
//! Floor: one transaction with the same rows on a bare connection (a result, the next call, and a
//! record of each), between any two service calls. Bound: at most 1.5 times that, at every length of history.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tower_chat::{
    PersistenceMode,
    core::{BoxError, format},
};
use tower_chat_sqlite::Durability;

use crate::{
    Effort,
    bare::{Bare, BareConversation, BareRecord},
    files::{self, DURABILITIES, Files},
    report::{Line, Samples, us_between, us_since},
    workload::{self, CALLS, Leaf},
};

/// The last call is answered, and a new one is asked.
const RECORDS: [BareRecord; 2] =
    [BareRecord { call: -1, result: Some(0) }, BareRecord { call: 1, result: None }];

const HISTORIES: [usize; 3] = [0, 1000, 10_000];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for (name, durability) in DURABILITIES {
        for history in HISTORIES {
            let runs = effort.repetitions(40);
            let (ours, floor) = runtime.block_on(measure_runs(durability, history, runs))?;
            let (us, floor) = (ours.median(), floor.median());
            let line = Line::new("sqlite", "per_service_call", "sqlite", history, us, floor);
            Line { durability: Some(name), ..line }.print()?;
        }
    }
    Ok(())
}

/// Runs each conversation once; the times of service calls and of the floor.
async fn measure_runs(
    durability: Durability,
    history: usize,
    runs: usize,
) -> Result<(Samples, Samples), BoxError> {
    let Files { store, bare, folder } = Files::make(durability, runs, history).await?;
    let store = Arc::new(store);
    let floor = Arc::new(Mutex::new(Floor::new(bare)));
    let leaf = Leaf::default();
    let pipeline =
        workload::pipeline(&leaf, Some((store.clone(), PersistenceMode::PerServiceCall)))?;
    leaf.do_between({
        let floor = floor.clone();
        move || floor.lock().unwrap_or_else(PoisonError::into_inner).append()
    });
    let mut ours = Samples::default();
    for run in 0..runs {
        let conversation = BareConversation::new(files::key(run), history)?;
        floor.lock().unwrap_or_else(PoisonError::into_inner).conversation = Some(conversation);
        leaf.prepare(CALLS - 1);
        let request = workload::input().in_conversation(files::key(run));
        let (mut pipeline, model) = (pipeline.clone(), leaf.clone());
        let task = tokio::spawn(async move {
            workload::run(&mut pipeline, &model, request, CALLS).await?;
            Ok::<_, BoxError>(Instant::now())
        });
        let end = task.await??;
        let calls = leaf.calls();
        let next = calls.iter().map(|(came, _)| *came).skip(1).chain([end]);
        let times = calls.iter().zip(next).skip(1);
        ours.extend(times.map(|((_, answered), next)| us_between(*answered, next)));
    }
    let floor = floor.lock().unwrap_or_else(PoisonError::into_inner).samples.clone();
    drop(folder);
    Ok((ours, floor))
}

/// The bare connection, and what its transactions took.
struct Floor {
    bare: Bare,
    bodies: [String; 2],
    conversation: Option<BareConversation>,
    samples: Samples,
}

impl Floor {
    fn new(bare: Bare) -> Self {
        let bodies = [workload::result_message(0), workload::call_message(1)];
        let bodies = bodies.map(|message| format::encode(&message));
        Self { bare, bodies, conversation: None, samples: Samples::default() }
    }

    /// Appends once; the first time to a conversation is not counted.
    fn append(&mut self) -> Result<(), BoxError> {
        let conversation = self.conversation.as_mut().ok_or("no conversation to append to")?;
        let is_first = conversation.is_new();
        let start = Instant::now();
        self.bare.append(conversation, &self.bodies, &RECORDS)?;
        if !is_first {
            self.samples.add(us_since(start));
        }
        Ok(())
    }
}
