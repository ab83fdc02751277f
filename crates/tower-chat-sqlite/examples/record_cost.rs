//! Measures the cost that the record of tool calls adds to an append, in bytes of write-ahead log
//! and in time, and the cost of queries of the record. Prints means in bytes and medians in
//! microseconds.
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement, not part of the crate")]

use std::{fs, path::Path, time::Instant};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolCall, ToolResult, ToolStatus,
    store::{
        HistoryStore, InvocationQuery, Revision, SequencePosition, ToolCallQueries,
        author::{RecordedResult, ToolRecord, Write},
    },
};
use tower_chat_sqlite::SqliteStore;

const CONVERSATIONS: usize = 100;
const ROUNDS: usize = 20;

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

/// Returns a write with the result of the previous call and the next call.
fn round(key: &ConversationKey, run: RunId, expected: Revision, is_recorded: bool) -> Write {
    let result = Message::tool_results([ToolResult::new("call", "r".repeat(300))]);
    let call = ToolCall::new("call_0123456789abcdefABCDEF01", "get_weather", "a".repeat(60));
    let id = MessageId { run, index: u32::try_from(expected.sequence).unwrap() };
    let messages = [result.into(), Message::tool_calls([call]).into()];
    let write = Write::new(key.clone(), id, expected, messages);
    let row = |sequence| {
        let position = SequencePosition { sequence, index: 0 };
        ToolRecord::pending(position, 0, "call_0123456789abcdefABCDEF01", "get_weather")
    };
    let mut rows = vec![row(expected.sequence + 2)];
    if expected.sequence > 0 {
        let mut outcome = row(expected.sequence);
        outcome.status = ToolStatus::Ok;
        let position = SequencePosition { sequence: expected.sequence + 1, index: 0 };
        outcome.result = RecordedResult::InMessage(position);
        outcome.started_at = Some(std::time::SystemTime::now());
        outcome.finished_at = outcome.started_at;
        rows.push(outcome);
    }
    if is_recorded { write.with_tools(rows) } else { write }
}

async fn append(store: &SqliteStore, log: &Path, is_recorded: bool) {
    let size = || fs::metadata(log).unwrap().len();
    let keys = (0..CONVERSATIONS).map(|number| ConversationKey::new("cost", number.to_string()));
    let mut conversations: Vec<_> = keys.map(|key| (key, RunId::new(), Revision::ABSENT)).collect();
    let (mut times, mut bytes, mut appends) = (Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        // The log is emptied, so that every append extends the log by the bytes that it writes.
        store.checkpoint().await.unwrap();
        for (key, run, at) in &mut conversations {
            let write = round(key, *run, *at, is_recorded);
            let slot = store.reserve().await.unwrap();
            let (before, start) = (size(), Instant::now());
            *at = store.append(slot, vec![write]).await.unwrap();
            times.push(start.elapsed().as_secs_f64() * 1e6);
            if before > 0 {
                bytes += size() - before;
                appends += 1;
            }
        }
    }
    println!(
        "an append {}: {} bytes, {:.1} us",
        if is_recorded { "with rows" } else { "without" },
        bytes / appends,
        median(times)
    );
}

async fn ask(store: &SqliteStore) {
    let scope = InvocationQuery::in_scope("cost");
    let one = InvocationQuery::of(&ConversationKey::new("cost", "7"));
    for (what, query) in [
        ("one message", one.clone().in_messages([6])),
        ("a conversation", one),
        ("a scope", scope.clone()),
        ("a scope, one status", scope.with_status(ToolStatus::Pending)),
    ] {
        let (mut calls, mut totals, mut found) = (Vec::new(), Vec::new(), 0);
        for _ in 0..20 {
            let start = Instant::now();
            found = store.invocations(&query).await.unwrap().found.len();
            calls.push(start.elapsed().as_secs_f64() * 1e6);
            let start = Instant::now();
            store.tool_totals(&query).await.unwrap();
            totals.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let (calls, totals) = (median(calls), median(totals));
        println!("{what}: {found} calls in {calls:.0} us, totals in {totals:.0} us");
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    runtime.block_on(async {
        for is_recorded in [false, true] {
            let file = folder.path().join(format!("{is_recorded}.db"));
            let store = SqliteStore::open(&file).await.unwrap();
            append(&store, &file.with_extension("db-wal"), is_recorded).await;
            if is_recorded {
                ask(&store).await;
            }
        }
    });
}
