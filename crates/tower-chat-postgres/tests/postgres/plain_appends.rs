//! Tests of plain appends: they have the same effect as writes through the database function, in
//! one round trip.

mod damaged;

use std::time::{Duration, SystemTime};

use crate::common::{
    append, key, open, options, proxy::Proxy, quoted, raw, schema, server, texts, write,
};
use tokio_postgres::types::ToSql;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolCall, ToolResult, ToolStatus,
    store::{
        Conflict, HistoryStore, InvocationQuery, Lease, LeaseEnd, Revision, SequencePosition,
        StoreError, ToolCallQueries,
        author::{RecordedResult, Staged, ToolRecord, Write},
    },
};
use tower_chat_postgres::PostgresStore;

/// Opens a store with one connection, which goes through a proxy. The connection has already
/// prepared the statements for writes of one and of two messages without rows of the record.
async fn prepared() -> (Proxy, PostgresStore) {
    let (proxy, address) = Proxy::start(&server().address("postgres")).await;
    let store = options().with_max_connections(1).connect(&address).await.unwrap();
    let mut revision = Revision::ABSENT;
    for texts in [&["1"][..], &["2"], &["3"], &["4", "5"], &["6", "7"]] {
        revision = append(&store, write(&key("first"), revision, texts)).await.unwrap();
    }
    assert_eq!(texts(&store, &key("first")).await, ["1", "2", "3", "4", "5", "6", "7"]);
    (proxy, store)
}

async fn begun(store: &PostgresStore, id: &str) -> (ConversationKey, Revision) {
    let key = key(id);
    let revision = append(store, write(&key, Revision::ABSENT, &["begun"])).await.unwrap();
    (key, revision)
}

async fn conflict(store: &PostgresStore, write: Write) -> Box<Conflict> {
    match append(store, write).await.unwrap_err().source {
        StoreError::Conflict(conflict) => conflict,
        error => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_is_one_round_trip_and_a_plain_append_with_a_conflict_is_two() {
    let (proxy, store) = prepared().await;
    let (key, begun) = begun(&store, "round trips").await;
    let before = proxy.asked();
    let second = write(&key, begun, &["b"]);
    let revision = append(&store, second.clone()).await.unwrap();
    assert_eq!(proxy.asked() - before, 1);
    let found = conflict(&store, write(&key, begun, &["other"])).await;
    assert_eq!((found.expected, found.found), (begun, revision));
    assert_eq!(proxy.asked() - before, 3);
    // The server recognises a repeated write, even after later writes.
    let last = append(&store, write(&key, revision, &["c", "d"])).await.unwrap();
    assert_eq!(append(&store, second).await.unwrap(), revision);
    assert_eq!(store.head(&key).await.unwrap().revision, last);
    assert_eq!(texts(&store, &key).await, ["begun", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_whose_answer_was_lost_is_stored_once() {
    let (proxy, store) = prepared().await;
    let (key, begun) = begun(&store, "lost").await;
    let second = write(&key, begun, &["a", "b"]);
    proxy.lose_the_next_answer();
    assert_eq!(append(&store, second.clone()).await.unwrap(), second.result());
    assert_eq!(proxy.lost(), 1);
    assert_eq!(texts(&store, &key).await, ["begun", "a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_that_waits_for_a_lock_conflicts_with_the_change_of_the_lock_holder() {
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema)).await;
    let (one, mut revision) = begun(&store, "waits").await;
    for text in ["b", "c"] {
        revision = append(&store, write(&one, revision, &[text])).await.unwrap();
    }
    // Another connection has changed the row of the conversation without a commit.
    let mut other = raw(&server().address("postgres")).await;
    let transaction = other.transaction().await.unwrap();
    let table = format!("{}.conversations", quoted(&schema));
    let backend: i32 = transaction.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let sql = format!("UPDATE {table} SET last_sequence = last_sequence + 1");
    transaction.execute(&sql, &[]).await.unwrap();
    let waiting = tokio::spawn({
        let (store, write) = (store.clone(), write(&one, revision, &["d"]));
        async move { append(&store, write).await }
    });
    let watch = raw(&server().address("postgres")).await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))";
    while watch.query_one(waits, &[&backend]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    transaction.commit().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err().source;
    let StoreError::Conflict(conflict) = error else { panic!("{error:?}") };
    assert_eq!(conflict.found.sequence, revision.sequence + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_that_waits_too_long_for_a_lock_is_not_stored_and_can_be_sent_again() {
    let schema = schema();
    // The timeout is long enough for requests that do not wait for a lock, even on a busy machine.
    let timeout = Duration::from_secs(3);
    let store =
        open(PostgresStore::options().with_schema(&schema).with_statement_timeout(timeout)).await;
    let (key, mut revision) = begun(&store, "too long").await;
    for text in ["b", "c"] {
        revision = append(&store, write(&key, revision, &[text])).await.unwrap();
    }
    let mut other = raw(&server().address("postgres")).await;
    let transaction = other.transaction().await.unwrap();
    let table = format!("{}.conversations", quoted(&schema));
    transaction.execute(&format!("SELECT 1 FROM {table} FOR UPDATE"), &[]).await.unwrap();
    let waiting = write(&key, revision, &["d"]);
    let error = append(&store, waiting.clone()).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Backend { .. }) && error.is_retryable(), "{error:?}");
    transaction.rollback().await.unwrap();
    assert_eq!(texts(&store, &key).await, ["begun", "b", "c"]);
    append(&store, waiting).await.unwrap();
    assert_eq!(texts(&store, &key).await, ["begun", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_during_an_open_run_is_a_conflict() {
    let (_proxy, store) = prepared().await;
    let (key, begun) = begun(&store, "open").await;
    let lease = Lease {
        attempt: 1,
        holder: 7,
        renewed_at: SystemTime::UNIX_EPOCH,
        until: LeaseEnd::Abandoned,
    };
    let opening = write(&key, begun, &["staged"]).staged(Staged {
        lease,
        close: None,
        service_id: None,
        partial_text: None,
    });
    let run = opening.run();
    let revision = append(&store, opening).await.unwrap();
    let found = conflict(&store, write(&key, revision, &["other"])).await;
    assert_eq!(found.open_run, Some(run));
    assert_eq!(texts(&store, &key).await, ["begun"]);
}

/// Stores writes with every combination of a number of messages and a number of rows, including
/// combinations for which there is no statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_stores_any_number_of_rows_like_the_function() {
    let schema = schema();
    let store = open(PostgresStore::options().with_schema(&schema)).await;
    let client = raw(&server().address("postgres")).await;
    let table = format!("{}.tool_invocations", quoted(&schema));
    let sql = format!(
        "SELECT row(call_index, round_index, call_id, name, status, result_sequence - sequence,
             result_index, result, error, started, finished)::text
         FROM {table} WHERE conversation = $1 AND sequence = $2 ORDER BY call_index"
    );
    let statement = client.prepare(&sql).await.unwrap();
    for messages in 1..=6_usize {
        for tools in 0..=10_u32 {
            let (key, mut revision) = begun(&store, &format!("{messages} and {tools}")).await;
            let mut expected = vec!["begun".to_owned()];
            let mut stored = Vec::new();
            // The first write with each combination calls the function; later writes use the
            // statement.
            for round in 0..3 {
                let first = revision.sequence + 1;
                let texts: Vec<_> =
                    (0..messages).map(|position| format!("{round} {position} \u{e9}'\"")).collect();
                let write = Write::new(
                    key.clone(),
                    MessageId { run: RunId::new(), index: 3 },
                    revision,
                    texts.iter().map(|text| Message::user(text.as_str()).into()),
                );
                let rows = (0..tools).map(|index| row(first, index)).collect();
                revision = append(&store, write.with_tools(rows)).await.unwrap();
                expected.extend(texts);
                let values: [&(dyn ToSql + Sync); 2] = [&key.id().as_bytes(), &(first as i64)];
                let rows = client.query(&statement, &values).await.unwrap();
                stored.push(rows.iter().map(|row| row.get(0)).collect::<Vec<String>>());
            }
            assert_eq!(texts(&store, &key).await, expected);
            assert_eq!(stored[0].len(), tools as usize);
            assert!(stored.iter().all(|rows| *rows == stored[0]), "{stored:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_append_replaces_an_existing_row_of_the_record() {
    let store = open(options()).await;
    let (key, mut revision) = begun(&store, "record").await;
    let call = Message::tool_calls([ToolCall::new("call", "pay", "{}")]);
    for _ in 0..3 {
        let position = SequencePosition { sequence: revision.sequence + 1, index: 0 };
        let mut row = ToolRecord::pending(position, 0, "call", "pay");
        let id = MessageId { run: RunId::new(), index: 0 };
        let asking = Write::new(key.clone(), id, revision, [call.clone().into()]);
        revision = append(&store, asking.with_tools(vec![row.clone()])).await.unwrap();
        let id = MessageId { run: id.run, index: 1 };
        let result = Message::tool_results([ToolResult::new("call", "paid")]);
        let answering = Write::new(key.clone(), id, revision, [result.into()]);
        row.status = ToolStatus::Ok;
        row.result = RecordedResult::InMessage(SequencePosition {
            sequence: revision.sequence + 1,
            index: 0,
        });
        revision = append(&store, answering.with_tools(vec![row])).await.unwrap();
    }
    let found = store.invocations(&InvocationQuery::of(&key)).await.unwrap();
    assert!(found.unreadable.is_empty(), "{:?}", found.unreadable);
    let statuses: Vec<_> = found.found.iter().map(|(_, call)| call.status).collect();
    assert_eq!(statuses, [ToolStatus::Ok; 3]);
}

/// Returns a row of the record. Each column has a value in at least one row of the test.
fn row(sequence: u64, index: u32) -> ToolRecord {
    let call = SequencePosition { sequence, index };
    let mut row = ToolRecord::pending(call, 2, format!("call\0{index}"), "pay");
    match index % 3 {
        0 => {}
        1 => {
            row.status = ToolStatus::Ok;
            row.result = RecordedResult::InMessage(SequencePosition { sequence, index });
            row.started_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(5));
            row.finished_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(7));
        }
        _ => {
            row.status = ToolStatus::Error;
            let result = ToolResult::new(format!("call\0{index}"), "apart");
            row.result = RecordedResult::Apart(Box::new(result));
            row.error = Some("broken\0".to_owned());
        }
    }
    row
}
