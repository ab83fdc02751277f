//! Tests of reading row by row, and of rewriting rows in place.

use tower_chat_core::store::{Maintenance, SequencePosition, StoreError, author::ToolRecord};

use super::*;
use tower_chat_core::store::Rewrite;

fn record(sequence: u64) -> ToolRecord {
    ToolRecord::pending(SequencePosition { sequence, index: 0 }, 0, "c1", "look")
}

fn rewrite(expected: Revision, sequence: u64, text: &str) -> Rewrite {
    let mut rewrite = Rewrite::new(key("a"), expected);
    rewrite.messages.push((sequence, Message::user(text)));
    rewrite
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_keeps_positions_and_ids_and_a_run_in_progress_gets_a_conflict() {
    let fixture = Fixture::new().await;
    let before = fixture.submit(vec![first("a", &["one", "two"])]).await.await.unwrap();
    let ids = |history: &tower_chat_core::store::History| {
        history.messages.iter().map(|message| message.id).collect::<Vec<_>>()
    };
    let stored = fixture.store.load(&key("a")).await.unwrap();
    let after = fixture.store.rewrite(rewrite(before, 2, "zwei")).await.unwrap();
    assert_eq!(fixture.texts(&key("a")).await, ["one", "zwei"]);
    let history = fixture.store.load(&key("a")).await.unwrap();
    assert_eq!((ids(&history), history.head.revision), (ids(&stored), after));
    assert_ne!(before.incarnation, after.incarnation);

    let late = fixture.submit(vec![write("a", run(1), before, &["three"])]).await.await;
    assert!(matches!(late.unwrap_err().source, StoreError::Conflict(_)));
    let again = fixture.store.rewrite(rewrite(before, 1, "eins")).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))));
    let absent = fixture.store.rewrite(Rewrite::new(key("b"), Revision::ABSENT)).await;
    assert!(matches!(absent, Err(StoreError::Conflict(_))), "a rewrite creates no conversation");
    fixture.submit(vec![write("a", run(2), after, &["three"])]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("a")).await, ["one", "zwei", "three"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_that_fails_changes_nothing() {
    let fixture = Fixture::new().await;
    let write = first("a", &["one"]).with_tools(vec![record(1)]);
    let before = fixture.submit(vec![write]).await.await.unwrap();
    let mut wrong = rewrite(before, 1, "eins");
    wrong.removed_tools.push(SequencePosition { sequence: 1, index: 0 });
    wrong.messages.push((2, Message::user("there is no message 2")));
    let refused = fixture.store.rewrite(wrong).await.unwrap_err();
    assert!(refused.to_string().contains("message 2 of conversation tests/a"), "{refused}");
    assert_eq!(fixture.texts(&key("a")).await, ["one"]);
    let rows = fixture.store.rows(&key("a")).await.unwrap().unwrap();
    assert_eq!((rows.head.revision, rows.tools.len()), (before, 1));
    let read_only = SqliteStore::options().with_read_only(true);
    let read_only = read_only.open(fixture.folder.path().join("chat.db")).await.unwrap();
    let refused = read_only.rewrite(rewrite(before, 1, "eins")).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly)));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_rows_are_returned_as_errors_among_the_other_rows() {
    let fixture = Fixture::new().await;
    let write = first("a", &["one", "two", "three"]).with_tools(vec![record(1), record(2)]);
    fixture.submit(vec![write]).await.await.unwrap();
    fixture
        .other()
        .execute_batch(
            "UPDATE messages SET body = '{' WHERE place & 3 = 2;
             UPDATE tool_invocations SET status = 'odd' WHERE place & 3 = 1;
             INSERT INTO tool_invocations (place, call_index, round_index, call_id, name, status)
             VALUES (7 << 32, 0, 0, 'c', 'look', 'ok');",
        )
        .unwrap();
    let rows = fixture.store.rows(&key("a")).await.unwrap().unwrap();
    let read: Vec<_> = rows.messages.iter().map(|(number, it)| (*number, it.is_ok())).collect();
    assert_eq!(read, [(1, true), (2, false), (3, true)]);
    let read: Vec<_> = rows.tools.iter().map(|(call, it)| (call.sequence, it.is_ok())).collect();
    assert_eq!(read, [(1, false), (2, true)]);
    assert!(fixture.store.rows(&key("b")).await.unwrap().is_none());
    assert!(fixture.store.check_integrity().await.unwrap().is_empty());
    let stray = fixture.store.stray_rows().await.unwrap();
    assert_eq!((stray.messages, stray.tools), (0, 1));
    assert_eq!(fixture.store.remove_stray_tools().await.unwrap(), 1);
    assert_eq!(fixture.store.stray_rows().await.unwrap().tools, 0);
}
