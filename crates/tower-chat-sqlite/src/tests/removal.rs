//! Tests that a conversation which is too large for one transaction is deleted in steps.

use rusqlite::Connection;
use tower_chat_core::{
    ToolStatus,
    store::{
        Directory, HistoryStore, HistorySummary, InvocationQuery, Maintenance, Revision,
        SequencePosition, Summaries, ToolCallQueries, author::ToolRecord,
    },
};

use super::{Fixture, first, key, run, write};
use crate::{SqliteStore, removal};

const MESSAGES: usize = 40;

/// Writes a conversation of 4 MB with one recorded tool call.
async fn large(fixture: &Fixture, id: &str) -> Revision {
    let mut at = Revision::ABSENT;
    for number in 0..MESSAGES {
        let text = format!("{number} {}", "x".repeat(100_000));
        let mut record =
            ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "id", "tool");
        record.status = ToolStatus::Ok;
        let next = write(id, run(1), at, &[&text]).with_tools(vec![record]);
        at = fixture.submit(vec![next]).await.await.unwrap();
    }
    at
}

fn count(connection: &Connection, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    connection.query_row(&sql, [], |row| row.get(0)).unwrap()
}

async fn assert_unseen(store: &SqliteStore, id: &str) {
    assert_eq!(store.head(&key(id)).await.unwrap().revision, Revision::ABSENT);
    assert!(store.load(&key(id)).await.unwrap().messages.is_empty());
    assert!(store.list("tests", None, 9).await.unwrap().iter().all(|it| *it != key(id)));
    assert!(store.list("", None, 9).await.unwrap().is_empty());
    assert_eq!(store.scopes(None, 100).await.unwrap(), ["tests"]);
    for scope in ["", "tests"] {
        let query = InvocationQuery::in_scope(scope);
        let found = store.invocations(&query).await.unwrap();
        assert!(found.found.is_empty() && found.unreadable.is_empty());
        assert!(store.tool_totals(&query).await.unwrap().is_empty());
    }
    let stray = store.stray_rows().await.unwrap();
    assert_eq!((stray.messages, stray.tools), (0, 0));
}

#[tokio::test]
async fn a_large_conversation_is_deleted_in_steps_and_its_log_stays_short() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![first("other", &["kept"])]).await.await.unwrap();
    large(&fixture, "c").await;
    fixture.store.checkpoint().await.unwrap();
    let before = fixture.store.statistics().commits;
    assert!(fixture.store.delete(&key("c")).await.unwrap());
    let steps = fixture.store.statistics().commits - before;
    assert!((4..=8).contains(&steps), "{steps} transactions for 4 MB");
    let log = std::fs::metadata(fixture.folder.path().join("chat.db-wal")).unwrap().len();
    assert!(log < 2 * removal::STEP, "{log} bytes of log");
    assert_unseen(&fixture.store, "c").await;
    let other = fixture.other();
    assert_eq!((count(&other, "messages"), count(&other, "conversations")), (1, 1));
    assert_eq!(count(&other, "tool_invocations"), 0);
    assert_eq!(fixture.texts(&key("other")).await, ["kept"]);
    assert!(!fixture.store.delete(&key("c")).await.unwrap());
    assert!(fixture.is_intact());
}

#[tokio::test]
async fn rows_of_an_interrupted_deletion_are_hidden_and_removed_on_open() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![first("other", &["kept"])]).await.await.unwrap();
    large(&fixture, "c").await;
    // The state of the file after a process was killed during a deletion.
    let other = fixture.other();
    let number: i64 = other
        .query_row("SELECT id FROM conversations WHERE conversation = 'c'", [], |row| row.get(0))
        .unwrap();
    let last = fixture.store.load(&key("c")).await.unwrap().message(1).unwrap().id.unwrap();
    let summary = HistorySummary::new(1, last, "one");
    fixture.store.add_summary(&key("c"), &summary, 0).await.unwrap();
    assert_eq!(count(&other, "history_summaries"), 1);
    removal::begin(&other, number).unwrap();
    assert_eq!(count(&other, "history_summaries"), 0, "its text is deleted at once");
    assert!(!removal::step(&other, number, removal::STEP).unwrap());
    drop(other);
    assert_unseen(&fixture.store, "c").await;
    // A new conversation with this key must not get the number of the deleted one.
    fixture.submit(vec![first("c", &["anew"])]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["anew"]);
    let left = count(&fixture.other(), "messages");
    assert!(left > 2, "{left}");
    let Fixture { folder, store } = fixture;
    store.close().await.unwrap();
    let path = folder.path().join("chat.db");
    let store = SqliteStore::open(&path).await.unwrap();
    // The writer thread finishes the deletion before any other work.
    store.close().await.unwrap();
    let file = Connection::open(&path).unwrap();
    assert_eq!((count(&file, "messages"), count(&file, "conversations")), (2, 2));
    assert_eq!(count(&file, "tool_invocations"), 0);
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(super::texts(&store, &key("c")).await, ["anew"]);
    assert_eq!(super::texts(&store, &key("other")).await, ["kept"]);
}
