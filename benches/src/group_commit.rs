//! `group_commit`: concurrent appends to 64 conversations, with full durability.
//!
//! Floor: a bare connection makes the same appends one after the other, each in its own
//! transaction. Unlike in other cases, the printed ratio is the speedup: the time of the floor for
//! each append, divided by the time of the store for each append. Bound: at least 2.

use std::{ops::Range, sync::Arc, time::Instant};

use tower_chat::{
    BoxError, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{Revision, author::Write},
};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{
    Effort,
    bare::BareConversation,
    files::{self, Files},
    report::{Line, Samples, Written, us_since},
    rows::BareAppend,
    workload,
    written::Syncs,
};

const CONVERSATIONS: usize = 64;
const APPENDS_OF_EACH: usize = 20;

/// The number of appends to each conversation while bytes are counted. More appends could cause a
/// checkpoint.
const COUNTED_APPENDS_OF_EACH: usize = 4;

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let (ours, floor, written) = runtime.block_on(measure_rounds(effort.repetitions(9)))?;
    let (us, floor) = (ours.median(), floor.median());
    let line = Line::new("group_commit", "none", "sqlite", 0, us, floor).with_speedup();
    let line = Line { durability: Some("full"), concurrency: CONVERSATIONS, ..line };
    line.with_written(written).print()?;
    Ok(())
}

/// Measures concurrent and sequential appends. Returns their times, divided by the number of
/// appends, and the bytes that were written.
async fn measure_rounds(rounds: usize) -> Result<(Samples, Samples, Written), BoxError> {
    let durability = Durability::Full;
    let files = Files::make(durability, 0, 0).await?;
    let messages: [Arc<Message>; 2] =
        [workload::result_message(0).into(), workload::call_message(1).into()];
    let append = BareAppend::of_messages(&messages);
    let (mut ours, mut floor, mut syncs) = (Samples::default(), Samples::default(), 0);
    let appends = |of_each| (CONVERSATIONS * of_each) as f64;
    let numbers = |round| (round * CONVERSATIONS)..((round + 1) * CONVERSATIONS);
    for round in 0..rounds {
        let before = Syncs::until_now(&files.store, &files.log)?;
        let took = append_at_once(&files, numbers(round), APPENDS_OF_EACH, &messages).await?;
        syncs += Syncs::until_now(&files.store, &files.log)?.since(before, durability)?;
        ours.add(took / appends(APPENDS_OF_EACH));
        let took = append_in_turn(&files, numbers(round), APPENDS_OF_EACH, &append)?;
        floor.add(took / appends(APPENDS_OF_EACH));
    }
    files.empty_logs().await?;
    append_at_once(&files, numbers(rounds), COUNTED_APPENDS_OF_EACH, &messages).await?;
    append_in_turn(&files, numbers(rounds), COUNTED_APPENDS_OF_EACH, &append)?;
    files.compare()?;
    let written = Written {
        bytes: files.log.bytes()? as f64 / appends(COUNTED_APPENDS_OF_EACH),
        floor_bytes: files.floor_log.bytes()? as f64 / appends(COUNTED_APPENDS_OF_EACH),
        fsyncs: syncs as f64 / (appends(APPENDS_OF_EACH) * rounds as f64),
    };
    Ok((ours, floor, written))
}

async fn append_at_once(
    files: &Files,
    numbers: Range<usize>,
    times: usize,
    messages: &[Arc<Message>; 2],
) -> Result<f64, BoxError> {
    let start = Instant::now();
    let append = |number| append_often(files.store.clone(), number, times, messages.clone());
    let tasks: Vec<_> = numbers.map(|number| tokio::spawn(append(number))).collect();
    for task in tasks {
        task.await??;
    }
    Ok(us_since(start))
}

fn append_in_turn(
    files: &Files,
    numbers: Range<usize>,
    times: usize,
    append: &BareAppend,
) -> Result<f64, BoxError> {
    let floor = files.floor();
    let mut conversations: Vec<BareConversation> =
        numbers.map(|number| floor.conversation(&files::key(number))).collect::<Result<_, _>>()?;
    let start = Instant::now();
    for _ in 0..times {
        for conversation in &mut conversations {
            floor.append(conversation, append)?;
        }
    }
    Ok(us_since(start))
}

async fn append_often(
    store: SqliteStore,
    number: usize,
    times: usize,
    messages: [Arc<Message>; 2],
) -> Result<(), BoxError> {
    let key = files::key(number);
    let mut id = MessageId { run: RunId::new(), index: 0 };
    let mut revision = Revision::ABSENT;
    for _ in 0..times {
        let slot = store.reserve().await?;
        let write = Write::new(key.clone(), id, revision, messages.clone());
        revision = store.append(slot, vec![write]).await?;
        id.index += 2;
    }
    Ok(())
}
