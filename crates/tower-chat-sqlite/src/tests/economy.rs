//! Tests of the cost of appends and reads: the changed rows, the prepared statements, and the
//! settings of the connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures_util::{FutureExt, future::join_all};
use rusqlite::hooks::{AuthContext, Authorization};
use tower_chat_core::store::{
    ConversationQuery, Directory, HistoryStore, Revision, RunActivity, ServiceIdChange,
    author::Write,
};

use super::{Fixture, first, key, run, write};
use crate::{Durability, SqliteStore};

/// Returns the number of rows that these writes change, in one call of `append`.
async fn rows_written(fixture: &Fixture, writes: Vec<Write>) -> usize {
    let rows = Arc::new(AtomicUsize::new(0));
    let counted = rows.clone();
    let hook = move |_, _: &str, _: &str, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    fixture.store.queue().writer().connection_mut().update_hook(Some(hook)).unwrap();
    fixture.submit(writes).await.await.unwrap();
    rows.load(Ordering::Relaxed)
}

#[tokio::test]
async fn an_append_writes_only_its_messages_and_the_changes_of_its_conversation() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]);
    let set = |write: Write| write.with_service_id(ServiceIdChange::Set("service".into()));
    let two = write("c", run(2), one.result(), &["two", "three"]);
    let three = set(write("c", run(3), two.result(), &["four"]));
    let four = set(write("c", run(3), three.result(), &["five"]));
    assert_eq!(rows_written(&fixture, vec![one]).await, 2, "the conversation and its message");
    // SQLite does not count the row of the usage, because its table has no row ids.
    assert_eq!(rows_written(&fixture, vec![two]).await, 3, "two messages, and another run");
    let three = rows_written(&fixture, vec![three]).await;
    assert_eq!(three, 3, "a message, another run, and another service id");
    assert_eq!(rows_written(&fixture, vec![four]).await, 1, "a message, and the same service id");
}

#[tokio::test]
async fn the_row_of_a_conversation_is_updated_with_its_activity_once_per_hour() {
    const HOUR: u64 = 3_600_000;
    let fixture = Fixture::new().await;
    let at = |milliseconds| SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
    let mut revision = Revision::ABSENT;
    for (milliseconds, rows, why) in [
        (2 * HOUR, 2, "the conversation and its message"),
        (3 * HOUR - 1, 1, "a message in the same hour"),
        (3 * HOUR, 3, "a message, the conversation, and its hour in the index"),
    ] {
        let next = write("c", run(1), revision, &[why]);
        let next = next.with_activity(RunActivity::new(at(milliseconds)));
        revision = next.result();
        assert_eq!(rows_written(&fixture, vec![next]).await, rows, "{why}");
        let query = |since| ConversationQuery::in_scope("tests").active_since(at(since));
        let found = fixture.store.conversations(&query(milliseconds)).await.unwrap();
        assert_eq!(found.conversations[0].last_active_at, at(milliseconds));
        let later = fixture.store.conversations(&query(milliseconds + 1)).await.unwrap();
        assert_eq!(later.conversations, []);
    }
}

#[tokio::test]
async fn statements_are_prepared_once() {
    let fixture = Fixture::new().await;
    let prepared = Arc::new(AtomicUsize::new(0));
    let counted = prepared.clone();
    // SQLite calls the authorizer whenever a statement is prepared, but not when it is executed.
    let hook = move |_: AuthContext<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        Authorization::Allow
    };
    fixture.store.queue().writer().connection_mut().authorizer(Some(hook)).unwrap();
    let mut revision = Revision::ABSENT;
    let mut append = async |id: &'static str| {
        let change = ServiceIdChange::Set(revision.sequence.to_string().into());
        let next = write(id, run(1), revision, &["text"]).with_service_id(change);
        revision = fixture.submit(vec![next.clone(), next]).await.await.unwrap();
        fixture
            .submit(vec![first(&revision.sequence.to_string(), &["other"])])
            .await
            .await
            .unwrap();
        fixture.store.delete(&key("1")).await.unwrap();
    };
    // The first append to a conversation executes other statements than later ones.
    append("c").await;
    append("c").await;
    let after_the_first = prepared.load(Ordering::Relaxed);
    assert!(after_the_first > 0);
    for _ in 0..5 {
        append("c").await;
    }
    assert_eq!(prepared.load(Ordering::Relaxed), after_the_first);
}

#[tokio::test]
async fn the_writer_has_the_configured_durability_also_after_it_reopens_its_connection() {
    for (durability, expected) in [(None, 2), (Some(Durability::Normal), 1)] {
        let options = SqliteStore::options();
        let options = match durability {
            Some(durability) => options.with_durability(durability),
            None => options,
        };
        let fixture = Fixture::with(options).await;
        let pragma = |name: &str| {
            let writer = &mut fixture.store.queue().writer();
            let connection = writer.connection_mut();
            connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap()
        };
        for _ in 0..2 {
            assert_eq!(pragma("synchronous"), expected);
            assert_eq!(pragma("secure_delete"), 1);
            assert_eq!(pragma("wal_autocheckpoint"), 0, "SQLite runs no automatic checkpoints");
            assert_eq!(pragma("journal_size_limit"), 16 << 20);
            fixture.store.queue().writer().release();
            fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
        }
    }
}

#[tokio::test]
async fn one_reader_serves_many_loads_although_callers_drop_some_of_them() {
    let fixture = Fixture::with(SqliteStore::options().with_readers(1)).await;
    fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let key_c = key("c");
    for _ in 0..10 {
        // The future is dropped while it waits for the reader, or during its query.
        drop(fixture.store.load(&key_c).now_or_never());
    }
    let loads = join_all((0..10).map(|_| fixture.store.load(&key_c))).await;
    assert!(loads.iter().all(|load| load.as_ref().unwrap().messages.len() == 1));
}

#[tokio::test]
async fn a_loaded_history_reports_its_well_formed_messages() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![first("c", &["one", "two", "three"])]).await.await.unwrap();
    assert_eq!(fixture.store.load(&key("c")).await.unwrap().well_formed_messages(), 3);
}
