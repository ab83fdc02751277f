//! `per_run`: a complete run of 20 tool rounds in per-run mode, with a SQLite store without a
//! cache. The run loads all stored messages once and appends all new messages once. Its time is
//! divided by its 21 service calls.
//!
//! Floor: the sum of two times, also divided by 21. The first is the time in which the store loads
//! and frees the messages. The second is the time in which a bare connection writes the same rows
//! in one transaction. Bound at 10,000 messages: the time of the load plus 1.1 times the time of
//! the transaction.
//!
//! A run frees its loaded messages on another thread. The measurement waits for that thread before
//! the next run begins.

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Instant,
};

use tower_chat::{BoxError, ConversationKey, HistoryStore, Message, PersistenceMode};
use tower_chat_sqlite::Durability;

use crate::{
    Effort,
    files::{self, DURABILITIES, Files},
    report::{Line, Samples, us_since},
    rows::BareAppend,
    workload::{self, CALLS, Model},
};

/// Lengths of history, each with the number of conversations that the runs use in turn. If the
/// number is 0, each run creates a new conversation.
const HISTORIES: [(usize, usize); 2] = [(0, 0), (10_000, 5)];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for (name, durability) in DURABILITIES {
        for (history, conversations) in HISTORIES {
            let runs = effort.repetitions(40);
            let (ours, floor) =
                runtime.block_on(measure_runs(durability, history, conversations, runs))?;
            let (us, floor) = (ours.median(), floor.median());
            let line = Line::new("per_run", "per_run", "sqlite", history, us, floor);
            Line { durability: Some(name), ..line }.print()?;
        }
    }
    Ok(())
}

/// Returns the times of runs and of the floor, divided by the service calls.
async fn measure_runs(
    durability: Durability,
    history: usize,
    conversations: usize,
    runs: usize,
) -> Result<(Samples, Samples), BoxError> {
    let files = Files::make(durability, conversations, history).await?;
    let model = Model::default();
    let last_loaded = LastLoaded::default();
    model.do_between({
        let last_loaded = last_loaded.clone();
        move |request| {
            last_loaded.set(request.messages().get(history.saturating_sub(1)));
            Ok(())
        }
    });
    let store = Arc::new(files.store.clone());
    let pipeline = workload::pipeline(&model, Some((store, PersistenceMode::PerRun)))?;
    let append = BareAppend::of_run();
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for run in 0..runs {
        let key = files::key(run.checked_rem(conversations).unwrap_or(run));
        // A disk may behave differently directly after a sync, so that the order alternates.
        let is_floor_first = run % 2 == 1;
        if is_floor_first {
            floor.add(measure_floor(&files, &key, history, &append).await? / CALLS as f64);
        }
        model.prepare(CALLS - 1);
        let request = workload::input().in_conversation(key.clone());
        let (mut pipeline, model) = (pipeline.clone(), model.clone());
        let task = tokio::spawn(async move {
            let start = Instant::now();
            workload::run(&mut pipeline, &model, request, CALLS).await?;
            Ok::<_, BoxError>(us_since(start))
        });
        ours.add(task.await?? / CALLS as f64);
        while !last_loaded.is_let_go() {
            tokio::task::yield_now().await;
        }
        if !is_floor_first {
            floor.add(measure_floor(&files, &key, history, &append).await? / CALLS as f64);
        }
    }
    Ok((ours, floor))
}

/// A weak reference to the last message that a run has loaded. It shows whether the run has freed
/// the message.
#[derive(Debug, Clone, Default)]
struct LastLoaded(Arc<Mutex<Weak<Message>>>);

impl LastLoaded {
    fn set(&self, message: Option<&Arc<Message>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            message.map(Arc::downgrade).unwrap_or_default();
    }

    fn is_let_go(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).strong_count() == 0
    }
}

async fn measure_floor(
    files: &Files,
    key: &ConversationKey,
    history: usize,
    append: &BareAppend,
) -> Result<f64, BoxError> {
    let mut conversation = files.floor().conversation(key)?;
    let (store, loaded_key) = (files.store.clone(), key.clone());
    let load = tokio::spawn(async move {
        let start = Instant::now();
        let loaded = black_box(store.load(&loaded_key).await?);
        let messages = loaded.messages.len();
        drop(loaded);
        Ok::<_, BoxError>((us_since(start), messages))
    });
    let (load, loaded) = load.await??;
    if loaded < history {
        return Err("messages are missing".into());
    }
    let start = Instant::now();
    files.floor().append(&mut conversation, append)?;
    Ok(load + us_since(start))
}
