//! Runs with a store in memory, and without a store.
//!
//! - `loop`: a run of 20 tool rounds and a final answer. The process has already executed an
//!   earlier run in the same conversation. The time of the complete run, including the load, is
//!   divided by its 21 service calls.
//! - `single`: a run of one service call.
//! - `first`: the same run as in `loop`, in a conversation that no run has loaded before.
//!
//! In the mode `none`, the stack has no persistence layer. The caller adds the earlier messages to
//! the request.
//!
//! Floor: the same run with 10 stored messages. Bounds in per-service-call mode at 10,000 messages:
//! at most 1.5 times the floor, and at most 4 times the time of `loop` without persistence.

use std::{sync::Arc, time::Instant};

use tower_chat::{
    BoxError, ChatPipeline, ConversationKey, HistoryStore, MemoryStore, PersistenceMode,
    message::Messages, store::author::Write,
};

use crate::{
    Effort,
    report::{Line, Samples, us_since},
    workload::{self, CALLS, Model},
};

const FLOOR: usize = 10;
const HISTORIES: [usize; 4] = [0, FLOOR, 1000, 10_000];
const MODES: [(&str, Option<PersistenceMode>); 4] = [
    ("per_run", Some(PersistenceMode::PerRun)),
    ("per_service_call", Some(PersistenceMode::PerServiceCall)),
    ("journaled", Some(PersistenceMode::Journaled)),
    ("none", None),
];

pub(crate) fn measure_loop(effort: Effort) -> Result<(), BoxError> {
    measure("loop", CALLS, Known::Yes, effort)
}

pub(crate) fn measure_single(effort: Effort) -> Result<(), BoxError> {
    measure("single", 1, Known::Yes, effort)
}

pub(crate) fn measure_first(effort: Effort) -> Result<(), BoxError> {
    measure("first", CALLS, Known::No, effort)
}

/// Whether an earlier run has loaded the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Yes,
    No,
}

struct Setting {
    mode: &'static str,
    history: usize,
    pipeline: ChatPipeline,
    stored: Stored,
    samples: Samples,
}

enum Stored {
    InStore(Box<Write>),
    WithCaller(Messages),
}

fn measure(case: &'static str, calls: usize, known: Known, effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let store = MemoryStore::new();
    let model = Model::default();
    let key = ConversationKey::new("benches", case);
    let mut settings = Vec::new();
    for (mode, persistence) in MODES {
        for history in HISTORIES {
            settings.push(Setting::new(mode, persistence, history, &store, &model, &key)?);
        }
    }
    let repetitions = effort.repetitions(if calls == 1 { 1000 } else { 200 });
    for _ in 0..repetitions {
        for setting in &mut settings {
            let sample = runtime.block_on(setting.sample(&store, &model, &key, calls, known))?;
            setting.samples.add(sample);
        }
    }
    for setting in &settings {
        let is_floor = |other: &&Setting| other.mode == setting.mode && other.history == FLOOR;
        let floor = settings.iter().find(is_floor).map_or(f64::NAN, |it| it.samples.median());
        let store = if setting.mode == "none" { "none" } else { "memory" };
        let (mode, history, us) = (setting.mode, setting.history, setting.samples.median());
        Line::new(case, mode, store, history, us, floor).print()?;
    }
    Ok(())
}

impl Setting {
    fn new(
        mode: &'static str,
        persistence: Option<PersistenceMode>,
        history: usize,
        store: &MemoryStore,
        model: &Model,
        key: &ConversationKey,
    ) -> Result<Self, BoxError> {
        let messages = workload::stored_messages(history);
        let (persistence, stored) = match persistence {
            Some(mode) => {
                let store: Arc<dyn HistoryStore> = Arc::new(store.clone());
                let write = Box::new(workload::first_write(key, messages));
                (Some((store, mode)), Stored::InStore(write))
            }
            None => (None, Stored::WithCaller(messages.into_iter().collect())),
        };
        let pipeline = workload::pipeline(model, persistence)?;
        Ok(Self { mode, history, pipeline, stored, samples: Samples::default() })
    }

    /// Resets the stored history, executes one run, and returns its time for each service call.
    async fn sample(
        &mut self,
        store: &MemoryStore,
        model: &Model,
        key: &ConversationKey,
        calls: usize,
        known: Known,
    ) -> Result<f64, BoxError> {
        let mut request = workload::input().in_conversation(key.clone());
        match &self.stored {
            Stored::InStore(write) => {
                store.delete(key).await?;
                if !write.messages().is_empty() {
                    store.append(store.reserve().await?, vec![(**write).clone()]).await?;
                    if known == Known::Yes {
                        model.prepare(0);
                        let request = workload::input().in_conversation(key.clone());
                        workload::run(&mut self.pipeline, model, request, 1).await?;
                    }
                }
            }
            Stored::WithCaller(messages) => request.prepend(messages),
        }
        model.prepare(calls - 1);
        let start = Instant::now();
        workload::run(&mut self.pipeline, model, request, calls).await?;
        Ok(us_since(start) / calls as f64)
    }
}
