//! Tests of damaged rows: every operation succeeds or returns a typed error, and the store deletes
//! nothing because of the damage.

use tower_chat_core::{
    Message, MessageId, RunId, ToolStatus,
    store::{
        Directory, HistoryStore, InvocationQuery, Journal, Keep, Lease, LeaseEnd, Maintenance,
        Revision, SequencePosition, StoreError, ToolCallQueries,
        author::{Close, Staged, ToolRecord, Write},
    },
};
use tower_chat_postgres::PostgresStore;

use crate::common::{append, key, open, options, quoted, raw, schema, server, texts, write};

const LARGEST: &str = "9223372036854775807";

/// The kinds of damage: a table, and the change of those rows of the table that belong to
/// conversation `c`.
const DAMAGES: &[(&str, &str)] = &[
    ("messages", "sequence = 0 WHERE sequence = 1"),
    ("messages", "sequence = -1 WHERE sequence = 1"),
    ("messages", "sequence = {largest} WHERE sequence = 6"),
    ("messages", "sequence = 100 WHERE sequence = 3"),
    ("messages", "run_index = -1 WHERE true"),
    ("messages", "run_index = 4294967295 WHERE true"),
    ("messages", "run_index = {largest} WHERE true"),
    ("messages", "run = '\\x00' WHERE sequence = 2"),
    ("conversations", "last_sequence = {largest} WHERE true"),
    ("conversations", "last_sequence = -1 WHERE true"),
    ("conversations", "last_sequence = 0 WHERE true"),
    ("conversations", "last_sequence = 5 WHERE true"),
    ("conversations", "last_sequence = 9 WHERE true"),
    ("conversations", "pruned = -1 WHERE true"),
    ("conversations", "pruned = {largest} WHERE true"),
    ("conversations", "pruned = 2 WHERE true"),
    ("conversations", "pruned = 9 WHERE true"),
    ("open_runs", "visible = -1 WHERE true"),
    ("open_runs", "visible = {largest} WHERE true"),
    ("open_runs", "attempt = 4294967295 WHERE true"),
    ("open_runs", "attempt = {largest} WHERE true"),
    ("open_runs", "opened = {largest} WHERE true"),
    ("tool_invocations", "sequence = 0 WHERE true"),
    ("tool_invocations", "sequence = {largest} WHERE true"),
    ("tool_invocations", "call_index = -1 WHERE true"),
    ("tool_invocations", "call_index = {largest} WHERE true"),
    ("tool_invocations", "round_index = {largest} WHERE true"),
    ("tool_invocations", "result_sequence = -1, result_index = 0 WHERE true"),
    ("tool_invocations", "result_sequence = {largest}, result_index = 4294967295 WHERE true"),
    ("tool_invocations", "started = {largest}, finished = -{largest} WHERE true"),
];

fn staged(store: &PostgresStore, close: Option<Close>) -> Staged {
    let holder = store.handle().holder();
    let lease =
        Lease { attempt: 1, holder, renewed_at: std::time::UNIX_EPOCH, until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}

/// Writes a conversation with six messages of three runs and one recorded call. If `is_open` is
/// true, also opens a run in it.
async fn fill(store: &PostgresStore, is_open: bool) -> Revision {
    let mut at = Revision::ABSENT;
    for texts in [["one", "two"], ["three", "four"], ["five", "six"]] {
        let mut record =
            ToolRecord::pending(SequencePosition { sequence: 2, index: 0 }, 0, "id", "tool");
        record.status = ToolStatus::Ok;
        let tools = if at == Revision::ABSENT { vec![record] } else { Vec::new() };
        at = append(store, write(&key("c"), at, &texts).with_tools(tools)).await.unwrap();
    }
    if is_open {
        at = append(store, write(&key("c"), at, &["staged"]).staged(staged(store, None)))
            .await
            .unwrap();
    }
    at
}

fn check<T: std::fmt::Debug>(
    what: &str,
    action: &str,
    outcome: Result<T, StoreError>,
) -> Result<T, StoreError> {
    if let Err(error) = &outcome {
        let is_known = matches!(
            error,
            StoreError::Corrupt { .. }
                | StoreError::Undecodable { .. }
                | StoreError::Conflict(_)
                | StoreError::UnderWay { .. }
        );
        assert!(is_known, "{what}: {action}: {error:?}");
    }
    outcome
}

async fn exercise(table: &str, change: &str, is_open: bool) {
    let what = format!("{table}: {change}, open: {is_open}");
    let schema = schema();
    let store = open(options().with_schema(&schema)).await;
    let at = fill(&store, is_open).await;
    append(&store, write(&key("d"), Revision::ABSENT, &["untouched"])).await.unwrap();
    let client = raw(&server().address("postgres")).await;
    let change = change.replace("{largest}", LARGEST);
    let schema = quoted(&schema);
    let sql = format!("UPDATE {schema}.{table} SET {change} AND conversation = 'c'");
    client.batch_execute(&sql).await.unwrap();
    let count = async || -> i64 {
        let sql = format!("SELECT count(*) FROM {schema}.messages WHERE conversation = 'c'");
        client.query_one(&sql, &[]).await.unwrap().get(0)
    };
    let before = count().await;
    let c = key("c");
    let _ = check(&what, "head", store.head(&c).await);
    let loaded = check(&what, "load", store.load(&c).await);
    let _ = check(&what, "open run", store.open_run(&c).await);
    let _ = check(&what, "open runs", store.open_runs("scope", None, 9).await);
    let _ = check(&what, "list", store.list("scope", None, 9).await);
    let query = InvocationQuery::in_scope("scope");
    let _ = check(&what, "record", store.invocations(&query).await);
    let _ = check(&what, "totals", store.tool_totals(&query).await);
    for keep in [Keep::Messages(0), Keep::Since(std::time::SystemTime::now())] {
        match check(&what, "prune", store.prune(&c, keep).await) {
            // A prune (a deletion of old runs) must find the damage that a load finds, except for a
            // damaged run index, which it does not read.
            Ok(pruned) => assert!(
                pruned.messages == 0 || loaded.is_ok() || change.starts_with("run_index"),
                "{what}: {pruned:?}"
            ),
            Err(_) => assert_eq!(count().await, before, "{what}"),
        }
    }
    let _ = check(&what, "fork", store.fork_at(&c, None, &key("copy")).await);
    let id = MessageId { run: RunId::new(), index: 0 };
    let next = if is_open {
        Write::new(c.clone(), id, at, [])
            .staged(staged(&store, Some(Close::Discard { visible: 6 })))
    } else {
        Write::new(c.clone(), id, at, [Message::user("next").into()])
    };
    let appended = append(&store, next).await.map_err(|error| error.source);
    let _ = check(&what, "append", appended);
    let d = key("d");
    let next = write(&d, store.head(&d).await.unwrap().revision, &["goes on"]);
    append(&store, next).await.unwrap();
    assert_eq!(texts(&store, &d).await, ["untouched", "goes on"], "{what}");
    assert!(check(&what, "delete", store.delete(&c).await).unwrap(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_out_of_range_are_reported_as_damage_and_change_no_other_conversation() {
    for (table, change) in DAMAGES {
        for is_open in [false, true] {
            if is_open || *table != "open_runs" {
                exercise(table, change, is_open).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_deletes_no_message_of_another_run() {
    let schema = schema();
    let store = open(options().with_schema(&schema)).await;
    let at = fill(&store, true).await;
    let open = store.head(&key("c")).await.unwrap().open_run.unwrap();
    let client = raw(&server().address("postgres")).await;
    let schema = quoted(&schema);
    let sql = format!(
        "UPDATE {schema}.open_runs SET visible = 2; UPDATE {schema}.conversations SET visible = 2"
    );
    client.batch_execute(&sql).await.unwrap();
    let id = MessageId { run: open.run, index: 9 };
    let close = Some(Close::Discard { visible: 2 });
    let end = Write::new(key("c"), id, at, []).staged(staged(&store, close));
    let error = append(&store, end).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Corrupt { .. }), "{error:?}");
    let sql = format!("SELECT count(*) FROM {schema}.messages");
    assert_eq!(client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 7);
}
