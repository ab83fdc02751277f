//! Tests of the record of tool calls (one row for each call) in the file: damaged rows, the
//! statements of a query, and the cost of rows.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::FutureExt;
use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};
use tower_chat_core::{
    Message, MessageId, ToolCall, ToolResult, ToolStatus,
    store::{
        HistoryStore, InvocationQuery, Invocations, Revision, SequencePosition, ToolCallQueries,
        author::{RecordedResult, ToolRecord, Write},
    },
};

use super::{Fixture, Held, first, key, run, unbounded};
use crate::{invocations, tool_totals};

const CALLS: u32 = 3;

fn calls() -> Message {
    let call =
        |number| ToolCall::new(format!("call_{number:024}"), "weather", "{\"city\":\"Paris\"}");
    Message::tool_calls((0..CALLS).map(call))
}

fn row(sequence: u64, index: u32) -> ToolRecord {
    let position = SequencePosition { sequence, index };
    ToolRecord::pending(position, 0, format!("call_{index:024}"), "weather")
}

fn answered(sequence: u64, index: u32, result: RecordedResult) -> ToolRecord {
    let mut row = row(sequence, index);
    row.status = ToolStatus::Ok;
    row.result = result;
    row
}

/// Returns a write with `count` pairs of messages, and with the rows of their calls. The first
/// message of a pair contains tool calls, and the second contains their results.
fn rounds(id: &str, count: u64) -> Write {
    let results = |_| ToolResult::new("", "sunny");
    let results = || Message::tool_results((0..CALLS).map(results));
    let messages = (0..count).flat_map(|_| [calls().into(), results().into()]);
    let rows = (0..count).map(|round| round * 2 + 1).flat_map(|sequence| {
        (0..CALLS).map(move |index| {
            let position = SequencePosition { sequence: sequence + 1, index };
            answered(sequence, index, RecordedResult::InMessage(position))
        })
    });
    let first = MessageId { run: run(1), index: 0 };
    Write::new(key(id), first, Revision::ABSENT, messages).with_tools(rows.collect())
}

fn positions(invocations: &Invocations) -> Vec<(u64, u32)> {
    let found = invocations.found.iter();
    found.map(|(_, call)| (call.sequence, call.sequence_index)).collect()
}

fn unreadable(invocations: &Invocations) -> Vec<(u64, u32)> {
    invocations.unreadable.iter().map(|row| (row.sequence, row.index)).collect()
}

#[tokio::test]
async fn a_query_of_the_record_reports_a_damaged_row_and_returns_the_other_rows() {
    for (damage, says) in [
        ("status = 'fine'", "\"fine\""),
        ("status = CAST(X'ff' AS TEXT)", "status"),
        ("name = CAST(X'ff' AS TEXT)", "name"),
        ("call_id = CAST(X'80' AS TEXT)", "call_id"),
        ("error = CAST(X'ff' AS TEXT)", "error"),
        ("round_index = -1", "round_index"),
        ("round_index = 4294967296", "round_index"),
        ("result_index = -1", "result_index"),
        ("result_index = 3", "result 3"),
        ("result_index = NULL", "columns of its result contradict"),
        ("result_sequence = NULL", "columns of its result contradict"),
        ("result_sequence = -1", "-1"),
        ("result_sequence = 0", "message 0"),
        ("result_sequence = 5", "message 5"),
        ("result_sequence = 4294967296 + 2", "result 1"),
        ("result = '{}'", "columns of its result contradict"),
        (
            "result = '{', result_sequence = NULL, result_index = NULL",
            "its result cannot be decoded",
        ),
        (
            "result = '[]', result_sequence = NULL, result_index = NULL",
            "its result cannot be decoded",
        ),
    ] {
        let fixture = Fixture::new().await;
        fixture.submit(vec![rounds("c", 2), rounds("d", 1)]).await.await.unwrap();
        let second = "place = (1 << 32) + 1 AND call_index = 1";
        let sql = format!("UPDATE tool_invocations SET {damage} WHERE {second}");
        assert_eq!(fixture.other().execute(&sql, []).unwrap(), 1);
        let query = InvocationQuery::in_scope("tests");
        let invocations = fixture.store.invocations(&query).await.unwrap();
        assert_eq!(unreadable(&invocations), [(1, 1)], "{damage}");
        let reason = &invocations.unreadable[0].reason;
        assert!(reason.contains(says), "{damage}: {reason}");
        assert_eq!(
            positions(&invocations),
            [(1, 0), (1, 2), (3, 0), (3, 1), (3, 2), (1, 0), (1, 1), (1, 2)],
            "{damage}"
        );
        let totals = fixture.store.tool_totals(&query).await.unwrap();
        assert_eq!(totals.iter().map(|tool| tool.calls).sum::<u64>(), 9, "{damage}");
    }
}

#[tokio::test]
async fn a_row_with_an_impossible_index_is_reported() {
    for index in ["-1", "4294967296"] {
        let fixture = Fixture::new().await;
        fixture.submit(vec![rounds("c", 1)]).await.await.unwrap();
        let sql = format!("UPDATE tool_invocations SET call_index = {index} WHERE call_index = 1");
        assert_eq!(fixture.other().execute(&sql, []).unwrap(), 1);
        let query = InvocationQuery::of(&key("c"));
        let invocations = fixture.store.invocations(&query).await.unwrap();
        assert_eq!(positions(&invocations), [(1, 0), (1, 2)]);
        assert_eq!(unreadable(&invocations), [(1, u32::MAX)]);
    }
}

#[tokio::test]
async fn a_damaged_message_hides_only_the_calls_that_refer_to_it() {
    for (sequence, lost) in [(1, [(1, 0), (1, 1), (1, 2)]), (4, [(3, 0), (3, 1), (3, 2)])] {
        for damage in ["body = 'x'", "body = CAST(X'ff' AS TEXT)", "run = X'00'", "run_index = -1"]
        {
            let fixture = Fixture::new().await;
            fixture.submit(vec![rounds("c", 2)]).await.await.unwrap();
            let sql = format!("UPDATE messages SET {damage} WHERE place = (1 << 32) + {sequence}");
            assert_eq!(fixture.other().execute(&sql, []).unwrap(), 1);
            let query = InvocationQuery::of(&key("c"));
            let invocations = fixture.store.invocations(&query).await.unwrap();
            assert_eq!(unreadable(&invocations), lost, "{damage}");
            assert_eq!(invocations.found.len(), 3);
            let reason = &invocations.unreadable[0].reason;
            assert!(reason.starts_with(&format!("message {sequence}: ")), "{reason}");
        }
    }
}

/// Returns the number of statements that `body` executes on the connection.
fn statements(connection: &mut Connection, body: impl FnOnce(&Connection)) -> usize {
    let run = Arc::new(AtomicUsize::new(0));
    let counted = run.clone();
    let hook = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(..) = event {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(hook)).unwrap();
    body(connection);
    run.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_query_of_the_record_is_one_statement_for_any_number_of_messages() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![rounds("c", 1_000), rounds("d", 1_000)]).await.await.unwrap();
    let mut connection = fixture.other();
    let of_c = InvocationQuery::of(&key("c"));
    for (query, expected) in [
        (of_c.clone().in_messages([1]), 3),
        (of_c.clone().in_messages(0..5_000), 3_000),
        (of_c, 3_000),
        (InvocationQuery::in_scope("tests"), 6_000),
    ] {
        let run = statements(&mut connection, |connection| {
            let found = invocations::invocations(connection, &query).unwrap();
            assert_eq!((found.found.len(), found.unreadable.len()), (expected, 0));
        });
        assert_eq!(run, 1, "{expected}");
        let run = statements(&mut connection, |connection| {
            let totals = tool_totals::tool_totals(connection, &query).unwrap();
            assert_eq!(totals[0].calls, expected as u64);
        });
        assert_eq!(run, 1, "{expected}");
    }
}

#[tokio::test]
async fn a_query_of_the_record_searches_only_rows_of_its_scope_and_messages() {
    let fixture = Fixture::new().await;
    let connection = fixture.other();
    let list = InvocationQuery::of(&key("c")).in_messages([1, 2]);
    for (query, condition) in [
        (InvocationQuery::in_scope("tests").of_tool("weather"), "(place>? AND place<?)"),
        (InvocationQuery::of(&key("c")), "(place>? AND place<?)"),
        (list.with_status(ToolStatus::Ok), "(place=?)"),
    ] {
        let filter = invocations::Filter::new(&query);
        let sql = format!("EXPLAIN QUERY PLAN SELECT t.name {}", filter.sql);
        let mut statement = connection.prepare(&sql).unwrap();
        let values = rusqlite::params_from_iter(filter.values);
        let plan: Vec<String> = statement
            .query_map(values, |row| row.get("detail"))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(plan[0].starts_with("SEARCH c USING COVERING INDEX"), "{plan:?}");
        let rows = format!("SEARCH t USING PRIMARY KEY {condition}");
        assert!(plan.contains(&rows), "{plan:?}");
        // SQLite finds the number of visible messages by the conversation's number.
        let open = ["CORRELATED SCALAR SUBQUERY", "SEARCH open_runs USING INTEGER PRIMARY KEY"];
        let known = |line: &String| {
            *line == rows || open.iter().any(|known| line.starts_with(known)) || is_list(line)
        };
        assert!(plan.iter().skip(1).all(known), "{plan:?}");
    }
}

/// Returns whether a line of the query plan scans the list of messages that the query contains.
fn is_list(line: &str) -> bool {
    line.starts_with("SCAN message VIRTUAL TABLE")
}

#[test]
fn a_query_of_the_record_that_selects_nothing_returns_without_waiting_or_reading() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let _held = Held::new(&fixture.store);
    drop(fixture.store.append(unbounded(), vec![first("c", &["waits"])]));
    // Outside of the runtime, a read would return an error.
    let query = InvocationQuery::of(&key("c"));
    let nothing = query.clone().in_messages([]);
    for query in [nothing.clone(), query.clone().with_limit(0)] {
        let invocations = fixture.store.invocations(&query).now_or_never().unwrap().unwrap();
        assert_eq!(invocations, Invocations::default());
    }
    assert_eq!(fixture.store.tool_totals(&nothing).now_or_never().unwrap().unwrap(), []);
    assert!(fixture.store.invocations(&query).now_or_never().is_none(), "another waits");
}

/// An older release had the file open before the migration.
#[tokio::test]
async fn rows_of_the_record_are_deleted_when_an_older_release_deletes_their_conversation() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![rounds("c", 2), rounds("d", 2)]).await.await.unwrap();
    let delete =
        "DELETE FROM messages WHERE place >> 32 = 1; DELETE FROM conversations WHERE id = 1";
    fixture.other().execute_batch(delete).unwrap();
    let count = "SELECT count(*), min(place >> 32) FROM tool_invocations";
    let left: (i64, i64) =
        fixture.other().query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(left, (6, 2));
}

/// Returns the average number of bytes that an append adds to the write-ahead log.
async fn bytes_per_append(rows: impl Fn(u64) -> Vec<ToolRecord>) -> f64 {
    const APPENDS: u64 = 200;
    let fixture = Fixture::new().await;
    let size = || fs::metadata(fixture.folder.path().join("chat.db-wal")).unwrap().len();
    // An open read transaction prevents SQLite from overwriting the log.
    let reader = fixture.other();
    let (mut expected, mut before) = (Revision::ABSENT, 0);
    for number in 0..APPENDS {
        let id = MessageId { run: run(1), index: u32::try_from(expected.sequence).unwrap() };
        let messages = [Message::user("q".repeat(300)).into(), calls().into()];
        let write = Write::new(key("c"), id, expected, messages).with_tools(rows(number));
        expected = fixture.submit(vec![write]).await.await.unwrap();
        if number == 0 {
            reader.execute_batch("BEGIN; SELECT count(*) FROM conversations").unwrap();
            before = size();
        }
    }
    (size() - before) as f64 / (APPENDS - 1) as f64
}

/// With a second B-tree, such as an index, an append would write at least one more page.
#[tokio::test]
async fn a_call_and_the_outcome_of_the_previous_call_add_less_than_two_pages_to_an_append() {
    let without = bytes_per_append(|_| Vec::new()).await;
    let with = bytes_per_append(|number| {
        let sequence = number * 2 + 2;
        let position = SequencePosition { sequence: sequence - 1, index: 0 };
        let outcome =
            (number > 0).then(|| answered(sequence - 2, 0, RecordedResult::InMessage(position)));
        outcome.into_iter().chain([row(sequence, 0)]).collect()
    })
    .await;
    let pages = (with - without) / 4120.0;
    assert!((0.9..1.9).contains(&pages), "{pages} pages: {without} and {with} bytes");
}
