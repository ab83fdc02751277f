//! Tests of open runs in the file. A run is open until its messages are committed or discarded.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use tower_chat_core::store::{
    Journal, Lease, LeaseEnd, Maintenance, SequencePosition, ServiceIdChange, StoreError,
    author::{Close, Staged, ToolRecord},
};

use super::*;
use tower_chat_core::store::Rewrite;

fn staging(attempt: u32) -> Staged {
    let lease =
        Lease { attempt, holder: 7, renewed_at: SystemTime::UNIX_EPOCH, until: LeaseEnd::NotHeld };
    Staged { lease, close: None, service_id: None, partial_text: None }
}

fn closing(close: Close) -> Staged {
    Staged { close: Some(close), ..staging(1) }
}

fn row(sequence: u64) -> ToolRecord {
    ToolRecord::pending(SequencePosition { sequence, index: 0 }, 0, "c1", "look")
}

/// Returns the numbers of rows in the tables of messages, tool calls and open runs.
fn counts(fixture: &Fixture) -> [i64; 3] {
    let connection = fixture.other();
    ["messages", "tool_invocations", "open_runs"].map(|table| {
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    })
}

/// Returns the number of rows that a write changes.
async fn rows_written(fixture: &Fixture, write: Write) -> usize {
    let rows = Arc::new(AtomicUsize::new(0));
    let counted = rows.clone();
    let hook = move |_, _: &str, _: &str, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    fixture.store.queue().writer().connection_mut().update_hook(Some(hook)).unwrap();
    fixture.submit(vec![write]).await.await.unwrap();
    rows.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_store_loads_messages_of_committed_runs_and_not_of_discarded_runs() {
    let fixture = Fixture::new().await;
    let other = SqliteStore::open(fixture.folder.path().join("chat.db")).await.unwrap();
    let mut at = fixture.submit(vec![first("a", &["one"])]).await.await.unwrap();
    for close in [Close::Discard { visible: 1 }, Close::Commit] {
        let staged = write("a", run(2), at, &["two", "three"]).with_tools(vec![row(2)]);
        at = fixture.submit(vec![staged.staged(staging(1))]).await.await.unwrap();
        assert_eq!(counts(&fixture), [3, 1, 1]);
        assert_eq!(texts(&other, &key("a")).await, ["one"]);
        assert_eq!(other.head(&key("a")).await.unwrap().open_run.unwrap().run, run(2));
        let content = other.open_run(&key("a")).await.unwrap().unwrap();
        assert_eq!((content.messages.len(), content.tools), (2, vec![row(2)]));
        let end = write("a", run(2), at, &[]).staged(closing(close));
        at = fixture.submit(vec![end]).await.await.unwrap();
        assert_eq!(other.head(&key("a")).await.unwrap().revision, at);
        match close {
            Close::Discard { .. } => assert_eq!(counts(&fixture), [1, 0, 0]),
            Close::Commit => assert_eq!(counts(&fixture), [3, 1, 0]),
        }
    }
    assert_eq!(texts(&other, &key("a")).await, ["one", "two", "three"]);
    assert!(fixture.is_intact());
}

#[tokio::test]
async fn a_staged_write_updates_the_row_of_its_run_only_if_the_row_changes() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]).staged(staging(1));
    let two = write("c", run(1), one.result(), &["two"]).staged(staging(1));
    let mut renewed = staging(1);
    renewed.lease.until = LeaseEnd::At(SystemTime::now());
    let three = write("c", run(1), two.result(), &["three"]).staged(renewed);
    let end = write("c", run(1), three.result(), &[]).staged(closing(Close::Commit));
    assert_eq!(rows_written(&fixture, one).await, 3, "conversation, message and run");
    assert_eq!(rows_written(&fixture, two).await, 1, "a message");
    // SQLite does not count the deletion of the row that `REPLACE` replaces.
    assert_eq!(rows_written(&fixture, three).await, 2, "a message, and another lease");
    assert_eq!(rows_written(&fixture, end.clone()).await, 1, "the row of the run is deleted");
    let mut at_once = closing(Close::Commit);
    at_once.service_id = Some(ServiceIdChange::Set("service".into()));
    let at_once = write("c", run(2), end.result(), &["four"]).staged(at_once);
    let rows = rows_written(&fixture, at_once).await;
    assert_eq!(rows, 3, "a message, another run, and the service id");
}

/// An older release had the file open before the migration.
#[tokio::test]
async fn an_open_run_is_deleted_when_an_older_release_deletes_its_conversation() {
    let fixture = Fixture::new().await;
    let staged = ["a", "b"].map(|id| first(id, &["one"]).staged(staging(1)));
    fixture.submit(staged.into()).await.await.unwrap();
    let delete =
        "DELETE FROM messages WHERE place >> 32 = 1; DELETE FROM conversations WHERE id = 1";
    fixture.other().execute_batch(delete).unwrap();
    assert_eq!(counts(&fixture), [1, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_contain_no_staged_messages_and_a_rewrite_during_an_open_run_is_a_conflict() {
    let fixture = Fixture::new().await;
    let before = first("a", &["one"]).with_tools(vec![row(1)]);
    let staged = write("a", run(2), before.result(), &["two"]).with_tools(vec![row(2)]);
    let at = fixture.submit(vec![before, staged.staged(staging(1))]).await.await.unwrap();
    let rows = fixture.store.rows(&key("a")).await.unwrap().unwrap();
    assert_eq!((rows.head.revision, rows.head.open_run.unwrap().run), (at, run(2)));
    assert_eq!((rows.messages.len(), rows.tools.len()), (1, 1));
    let mut rewrite = Rewrite::new(key("a"), at);
    rewrite.messages.push((1, Message::user("eins")));
    match fixture.store.rewrite(rewrite).await {
        Err(StoreError::Conflict(conflict)) => {
            assert_eq!((conflict.found, conflict.open_run), (at, Some(run(2))));
        }
        other => panic!("expected a conflict, not {other:?}"),
    }
    assert_eq!(fixture.texts(&key("a")).await, ["one"]);
}

#[tokio::test]
async fn pending_approvals_are_found_without_reading_the_record() {
    let fixture = Fixture::new().await;
    let plan: Vec<String> = fixture
        .other()
        .prepare(&format!("EXPLAIN QUERY PLAN {}", crate::pending_approvals::SQL))
        .unwrap()
        .query_map([1_i64 << 32, 2_i64 << 32], |row| row.get("detail"))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        plan,
        [
            "SEARCH t USING COVERING INDEX pending_approvals (place>? AND place<?)",
            "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"
        ]
    );
}

#[tokio::test]
async fn a_missing_message_of_an_open_run_is_reported_as_damage() {
    let fixture = Fixture::new().await;
    let one = first("a", &["one", "two"]);
    let staged = write("a", run(2), one.result(), &["three", "four"]).staged(staging(1));
    fixture.submit(vec![one, staged]).await.await.unwrap();
    let remove = "DELETE FROM messages WHERE place = (1 << 32) + ";
    fixture.other().execute_batch(&format!("{remove}3")).unwrap();
    assert_eq!(fixture.texts(&key("a")).await, ["one", "two"], "readers do not read it");
    let content = fixture.store.open_run(&key("a")).await;
    assert!(matches!(content, Err(StoreError::Corrupt { .. })), "{content:?}");
    fixture.other().execute_batch(&format!("{remove}2")).unwrap();
    let history = fixture.store.load(&key("a")).await;
    assert!(matches!(history, Err(StoreError::Corrupt { .. })), "{history:?}");
}
