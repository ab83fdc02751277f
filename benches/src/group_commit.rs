//! `group_commit`: 64 conversations that append at once, with full durability.
//!
//! Floor: the same appends one after the other, each in a transaction of its own, on a bare
//! connection. Here the ratio is the speedup, `floor_us` divided by `us_per_call`: how many times
//! as many appends a second. Bound: at least 3.5.

use std::{sync::Arc, time::Instant};

use tower_chat::core::{
    BoxError, Message, MessageId, RunId, format,
    store::{HistoryStore, Revision, Write},
};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{
    Effort,
    bare::BareConversation,
    files::{self, Files},
    report::{Line, Samples, us_since},
    workload,
};

const CONVERSATIONS: usize = 64;
const APPENDS_OF_EACH: usize = 20;
const APPENDS: f64 = (CONVERSATIONS * APPENDS_OF_EACH) as f64;

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let (ours, floor) = runtime.block_on(measure_rounds(effort.repetitions(5)))?;
    let (us, floor) = (ours.median(), floor.median());
    let line = Line::new("group_commit", "none", "sqlite", 0, us, floor).with_speedup();
    Line { durability: Some("full"), concurrency: CONVERSATIONS, ..line }.print()?;
    Ok(())
}

/// The times of one append of many at once, and of one after the other.
async fn measure_rounds(rounds: usize) -> Result<(Samples, Samples), BoxError> {
    let files = Files::make(Durability::Full, 0, 0).await?;
    let messages: [Arc<Message>; 2] =
        [workload::result_message(0).into(), workload::call_message(1).into()];
    let bodies =
        [0, 1].map(|place: usize| messages.get(place).map(|message| format::encode(message)));
    let bodies: Vec<String> = bodies.into_iter().flatten().collect();
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        let numbers = (round * CONVERSATIONS)..((round + 1) * CONVERSATIONS);
        let start = Instant::now();
        let tasks: Vec<_> = numbers
            .clone()
            .map(|number| tokio::spawn(append_often(files.store.clone(), number, messages.clone())))
            .collect();
        for task in tasks {
            task.await??;
        }
        ours.add(us_since(start) / APPENDS);

        let mut conversations: Vec<BareConversation> = numbers
            .map(|number| BareConversation::new(files::key(number), 0))
            .collect::<Result<_, _>>()?;
        let start = Instant::now();
        for _ in 0..APPENDS_OF_EACH {
            for conversation in &mut conversations {
                files.bare.append(conversation, &bodies, &[])?;
            }
        }
        floor.add(us_since(start) / APPENDS);
    }
    Ok((ours, floor))
}

async fn append_often(
    store: SqliteStore,
    number: usize,
    messages: [Arc<Message>; 2],
) -> Result<(), BoxError> {
    let key = files::key(number);
    let mut id = MessageId { run: RunId::new(), index: 0 };
    let mut revision = Revision::ABSENT;
    for _ in 0..APPENDS_OF_EACH {
        let slot = store.reserve().await?;
        let write = Write::new(key.clone(), id, revision, messages.clone());
        revision = store.append(slot, vec![write]).await?;
        id.index += 2;
    }
    Ok(())
}
