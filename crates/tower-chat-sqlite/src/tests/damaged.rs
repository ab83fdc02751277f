//! Tests of damaged rows, such as rows with numbers that no store writes. Every operation on a
//! damaged row succeeds or returns a typed error. No operation deletes data because of the damage
//! or affects other conversations.

use tower_chat_core::{
    RunId, ToolStatus,
    store::{
        Directory, HistoryStore, InvocationQuery, Journal, Keep, Lease, LeaseEnd, Maintenance,
        NumbersUsedUp, Revision, SequencePosition, StoreError, ToolCallQueries,
        author::{Close, Slot, Staged, ToolRecord, Write},
    },
};

use super::{Fixture, first, key, run, write};
use crate::SqliteStore;

/// The kinds of damage, each with its name and the SQL that causes it. `{c}` is the number of the
/// damaged conversation, and `{d}` the number of the other conversation.
const DAMAGES: &[(&str, &str)] = &[
    (
        "a message has number 0",
        "UPDATE messages SET place = {c} << 32 WHERE place = ({c} << 32) + 1",
    ),
    (
        "a message has the last number",
        "UPDATE messages SET place = ({c} << 32) + 4294967295 WHERE place = ({c} << 32) + 6",
    ),
    ("a message is missing", "DELETE FROM messages WHERE place = ({c} << 32) + 3"),
    ("the last message is missing", "DELETE FROM messages WHERE place = ({c} << 32) + 6"),
    ("all messages are missing", "DELETE FROM messages WHERE place >> 32 = {c}"),
    (
        "a run index is the largest",
        "UPDATE messages SET run_index = 4294967295 WHERE place >> 32 = {c}",
    ),
    ("a run index is negative", "UPDATE messages SET run_index = -1 WHERE place >> 32 = {c}"),
    (
        "a run index is huge",
        "UPDATE messages SET run_index = 9223372036854775807 WHERE place >> 32 = {c}",
    ),
    (
        "a message is nested a million levels deep",
        r#"UPDATE messages SET body = '{"v":1,"role":"user","parts":[],"metadata":{"a":' ||
             replace(hex(zeroblob(1000000)), '00', '[') || replace(hex(zeroblob(1000000)), '00', ']')
             || '}}' WHERE place = ({c} << 32) + 3"#,
    ),
    (
        "a message is enormous",
        r#"UPDATE messages SET body = '{"v":1,"role":"user","parts":' || hex(zeroblob(16000000))
             WHERE place = ({c} << 32) + 3"#,
    ),
    (
        "a result is nested a million levels deep",
        r#"UPDATE tool_invocations SET result = replace(hex(zeroblob(1000000)), '00', '[')"#,
    ),
    ("a run id is short", "UPDATE messages SET run = x'00' WHERE place = ({c} << 32) + 2"),
    (
        "the number of pruned messages is negative",
        "UPDATE conversations SET pruned = -1 WHERE id = {c}",
    ),
    (
        "the number of pruned messages is the largest integer",
        "UPDATE conversations SET pruned = 9223372036854775807 WHERE id = {c}",
    ),
    (
        "the number of pruned messages is the largest sequence number",
        "UPDATE conversations SET pruned = 4294967295 WHERE id = {c}",
    ),
    ("more messages are pruned than exist", "UPDATE conversations SET pruned = 7 WHERE id = {c}"),
    (
        "fewer messages are pruned than are missing",
        "UPDATE conversations SET pruned = 2 WHERE id = {c}",
    ),
    ("the conversation has number 0", "UPDATE conversations SET id = 0 WHERE id = {c}"),
    (
        "the number of the conversation is too large",
        "UPDATE conversations SET id = 2147483648 WHERE id = {c}",
    ),
    (
        "the shifted number of the conversation is the number of another one",
        "UPDATE conversations SET id = (1 << 32) + {d} WHERE id = {c}",
    ),
    (
        "the number of the conversation is negative",
        "UPDATE conversations SET id = -1 WHERE id = {c}",
    ),
    (
        "the number of visible messages of an open run is negative",
        "UPDATE open_runs SET visible = -1",
    ),
    (
        "the number of visible messages of an open run is the largest integer",
        "UPDATE open_runs SET visible = 9223372036854775807",
    ),
    ("an open run has more visible messages than exist", "UPDATE open_runs SET visible = 7"),
    (
        "the attempt of an open run is the largest integer",
        "UPDATE open_runs SET attempt = 4294967295",
    ),
    ("the attempt of an open run is negative", "UPDATE open_runs SET attempt = -1"),
    (
        "the start of an open run is out of range",
        "UPDATE open_runs SET opened = -9223372036854775808",
    ),
    ("an open run has a short id", "UPDATE open_runs SET run = x'01'"),
    (
        "a call is in message 0",
        "UPDATE tool_invocations SET place = {c} << 32 WHERE place = ({c} << 32) + 2",
    ),
    (
        "a call is in a message with the last number",
        "UPDATE tool_invocations SET place = ({c} << 32) + 4294967295 WHERE place = ({c} << 32) + 2",
    ),
    ("a call has a negative index", "UPDATE tool_invocations SET call_index = -1"),
    ("a call has a huge index", "UPDATE tool_invocations SET call_index = 9223372036854775807"),
    ("a round is huge", "UPDATE tool_invocations SET round_index = 9223372036854775807"),
    (
        "a result is in message -1",
        "UPDATE tool_invocations SET result_sequence = -1, result_index = 0",
    ),
    (
        "a result is in the last message of all",
        "UPDATE tool_invocations SET result_sequence = 9223372036854775807,
             result_index = 4294967295",
    ),
    ("a status is unknown", "UPDATE tool_invocations SET status = 'x'"),
    (
        "the start of a call is out of range",
        "UPDATE tool_invocations SET started = 9223372036854775807",
    ),
];

/// Creates a store with two conversations. The tests damage conversation `c`, and the damage must
/// not affect conversation `d`. `c` has six messages of three runs and one recorded call. If
/// `is_open` is true, `c` also has an open run, which is not committed yet.
async fn fixture(is_open: bool) -> (Fixture, Revision) {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.append(Slot::unbounded(), vec![first("d", &["untouched"])]).await.unwrap();
    let mut at = Revision::ABSENT;
    for (number, texts) in [(1, ["one", "two"]), (2, ["three", "four"]), (3, ["five", "six"])] {
        let call = SequencePosition { sequence: 2, index: 0 };
        let mut record = ToolRecord::pending(call, 0, "id", "tool");
        record.status = ToolStatus::Ok;
        let tools = if number == 1 { vec![record] } else { Vec::new() };
        let next = write("c", run(number), at, &texts).with_tools(tools);
        at = store.append(Slot::unbounded(), vec![next]).await.unwrap();
    }
    if is_open {
        let staged = write("c", run(4), at, &["staged"]).staged(staged(&fixture.store, None));
        at = store.append(Slot::unbounded(), vec![staged]).await.unwrap();
    }
    (fixture, at)
}

fn staged(store: &SqliteStore, close: Option<Close>) -> Staged {
    let renewed_at = std::time::UNIX_EPOCH;
    let holder = store.handle().holder();
    let lease = Lease { attempt: 1, holder, renewed_at, until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. } | StoreError::Undecodable { .. })
}

/// Panics if the operation failed with an error that neither reports the damage nor is listed here.
fn check<T: std::fmt::Debug>(what: &str, action: &str, outcome: Result<T, StoreError>) {
    if let Err(error) = outcome {
        let is_refusal = match &error {
            StoreError::Conflict(_) | StoreError::UnderWay { .. } => true,
            StoreError::Backend { source, .. } => source.is::<NumbersUsedUp>(),
            _ => false,
        };
        assert!(is_refusal || is_damage(&error), "{what}: {action}: {error:?}");
    }
}

fn count(fixture: &Fixture, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    fixture.other().query_row(&sql, [], |row| row.get(0)).unwrap()
}

async fn exercise(what: &str, sql: &str, is_open: bool) {
    let (fixture, at) = fixture(is_open).await;
    let store = &fixture.store;
    let number = |id: &str| -> i64 {
        let sql = "SELECT id FROM conversations WHERE conversation = ?1";
        fixture.other().query_row(sql, [id], |row| row.get(0)).unwrap()
    };
    let (c, d) = (number("c"), number("d"));
    let sql = sql.replace("{c}", &c.to_string()).replace("{d}", &d.to_string());
    let ours = format!("PRAGMA ignore_check_constraints = ON; {sql}");
    fixture.other().execute_batch(&ours).unwrap();
    let rows = || ["messages", "tool_invocations", "conversations"].map(|it| count(&fixture, it));
    let before = rows();
    let key = key("c");

    check(what, "head", store.head(&key).await);
    check(what, "load", store.load(&key).await.map(|history| history.messages.len()));
    check(what, "open run", store.open_run(&key).await);
    check(what, "open runs", store.open_runs("tests", None, 9).await);
    check(what, "list", store.list("tests", None, 9).await);
    check(what, "rows", store.rows(&key).await);
    check(what, "record", store.invocations(&InvocationQuery::in_scope("tests")).await);
    check(what, "totals", store.tool_totals(&InvocationQuery::in_scope("tests")).await);
    for keep in [Keep::Messages(0), Keep::Messages(2), Keep::Since(std::time::SystemTime::now())] {
        if let Ok(pruned) = store.prune(&key, keep).await {
            // A prune (a deletion of the oldest runs) must find the damage that a load finds,
            // except for a damaged run index, which a prune does not read.
            let is_found = what.contains("run index") || store.load(&key).await.is_ok();
            assert!(is_found || pruned.messages == 0, "{what}: {pruned:?}");
            assert!(pruned.messages <= 6, "{what}: {pruned:?}");
        } else {
            assert_eq!(rows(), before, "{what}: a prune that failed deleted nothing");
        }
    }
    check(what, "fork", store.fork_at(&key, None, &super::key("copy")).await);
    if is_open {
        for close in [Close::Discard { visible: 6 }, Close::Commit] {
            let end = Write::new(
                key.clone(),
                tower_chat_core::MessageId { run: run(4), index: 9 },
                at,
                [],
            );
            let end = end.staged(staged(store, Some(close)));
            let ended = store.append(Slot::unbounded(), vec![end]).await;
            check(what, "close", ended.map_err(|error| error.source));
        }
    } else {
        for expected in [at, Revision { sequence: u64::from(u32::MAX), ..at }] {
            let next = write("c", RunId::new(), Revision { sequence: 0, ..expected }, &["next"]);
            let next = Write::new(key.clone(), next.id(), expected, next.messages().to_vec());
            let stored = store.append(Slot::unbounded(), vec![next]).await;
            if let Err(error) = stored {
                let is_full = matches!(error.source, StoreError::Backend { retryable: false, .. });
                let is_full = is_full && what.contains("last number");
                if !is_full {
                    check(what, "append", Err::<(), _>(error.source));
                }
            }
        }
    }
    // Writes to the other conversation must still succeed.
    let next = write("d", run(9), first("d", &["untouched"]).result(), &["goes on"]);
    store.append(Slot::unbounded(), vec![next]).await.unwrap();
    assert_eq!(fixture.texts(&super::key("d")).await, ["untouched", "goes on"], "{what}");
    check(what, "delete", store.delete(&key).await);
    assert_eq!(fixture.texts(&super::key("d")).await, ["untouched", "goes on"], "{what}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_out_of_range_are_reported_as_damage_and_change_no_other_conversation() {
    for (what, sql) in DAMAGES {
        for is_open in [false, true] {
            if is_open || !sql.contains("open_runs") {
                exercise(what, sql, is_open).await;
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_row_stops_prune_before_anything_is_deleted() {
    for (what, sql) in DAMAGES.iter().filter(|(_, sql)| sql.contains("messages")) {
        let (fixture, _) = fixture(false).await;
        let sql = sql.replace("{c}", "2").replace("{d}", "1");
        fixture.other().execute_batch(&sql).unwrap();
        let before = count(&fixture, "messages");
        let pruned = fixture.store.prune(&key("c"), Keep::Messages(1)).await;
        if what.contains("run index") || sql.contains("SET body") {
            continue; // A prune reads neither run indexes nor bodies.
        }
        if what.contains("the last message is missing") {
            assert_eq!(pruned.unwrap().messages, 4, "{what}: the remaining messages are intact");
            continue;
        }
        match pruned {
            Err(error) => assert!(is_damage(&error), "{what}: {error:?}"),
            Ok(pruned) => assert_eq!(pruned.messages, 0, "{what}"),
        }
        assert_eq!(count(&fixture, "messages"), before, "{what}");
    }
}

#[tokio::test]
async fn a_fork_of_a_conversation_with_missing_messages_fails_and_creates_no_conversation() {
    for (what, sql) in DAMAGES.iter().filter(|(what, _)| {
        ["a message is missing", "a message has number 0", "a message has the last number"]
            .contains(what)
    }) {
        let (fixture, _) = fixture(false).await;
        let sql = sql.replace("{c}", "2");
        fixture.other().execute_batch(&sql).unwrap();
        let error = fixture.store.fork_at(&key("c"), None, &key("copy")).await.unwrap_err();
        assert!(is_damage(&error), "{what}: {error:?}");
        assert_eq!(fixture.store.head(&key("copy")).await.unwrap().revision, Revision::ABSENT);
        assert_eq!(count(&fixture, "conversations"), 2, "{what}");
    }
}

#[tokio::test]
async fn a_discard_deletes_no_message_of_another_run() {
    let (fixture, at) = fixture(true).await;
    // The damaged number of visible messages is smaller than when the run began. A discard would
    // therefore delete messages of another run.
    fixture.other().execute_batch("UPDATE open_runs SET visible = 2").unwrap();
    let id = tower_chat_core::MessageId { run: run(4), index: 9 };
    let close = Some(Close::Discard { visible: 2 });
    let end = Write::new(key("c"), id, at, []).staged(staged(&fixture.store, close));
    let error = fixture.store.append(Slot::unbounded(), vec![end]).await.unwrap_err();
    assert!(is_damage(&error.source), "{error:?}");
    assert_eq!(count(&fixture, "messages"), 8);
}
