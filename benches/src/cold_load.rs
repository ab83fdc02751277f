//! `cold_load`: the load of a complete conversation from SQLite, without concurrency.
//!
//! Floor: a bare connection reads the same rows and parses them. Bound: at most twice the floor.

use std::{hint::black_box, time::Instant};

use tower_chat::{BoxError, HistoryStore};
use tower_chat_sqlite::Durability;

use crate::{
    Effort,
    files::{self, Files},
    report::{Line, Samples, us_since},
};

const HISTORIES: [usize; 2] = [1000, 10_000];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    for history in HISTORIES {
        let loads = effort.repetitions(60);
        let (ours, floor) = runtime.block_on(measure_loads(history, loads))?;
        Line::new("cold_load", "none", "sqlite", history, ours.median(), floor.median()).print()?;
    }
    Ok(())
}

async fn measure_loads(history: usize, loads: usize) -> Result<(Samples, Samples), BoxError> {
    let files = Files::make(Durability::Full, 1, history).await?;
    let key = files::key(0);
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for _ in 0..loads {
        let start = Instant::now();
        let loaded = black_box(files.store.load(&key).await?);
        ours.add(us_since(start));
        let start = Instant::now();
        let read = black_box(files.floor().load(&key)?);
        floor.add(us_since(start));
        if (loaded.messages.len(), read.len()) != (history, history) {
            return Err("messages are missing".into());
        }
    }
    Ok((ours, floor))
}
