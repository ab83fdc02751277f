//! Tests that the store converts errors of SQLite to typed errors, stores no write in part, and
//! remains usable after an error.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rusqlite::{
    Connection, OpenFlags,
    trace::{TraceEvent, TraceEventCodes},
};
use tower_chat_core::{
    Classified, Message, MessageId,
    store::{
        HistoryStore, Revision, ServiceIdChange, StoreError,
        author::{AppendError, Slot, Ticket, Write},
    },
};

use super::{Fixture, first, hold_the_lead, is_open, key, run, unbounded, write};
use crate::{
    OpenError,
    byte_budget::ByteBudget,
    file::{LOCK_TIMEOUT, opening::while_locked},
    submission::Submission,
};

fn is_retryable(error: &AppendError) -> bool {
    matches!(error.source, StoreError::Backend { retryable: true, .. })
}

fn source_text(error: &AppendError) -> String {
    let source = std::error::Error::source(&error.source);
    source.map(ToString::to_string).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_retryable_and_leaves_the_store_usable() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let one = first("c", &["one"]);
    store.append(Slot::unbounded(), vec![one.clone()]).await.unwrap();
    let set_limit = |pages: &str| {
        let writer = &mut store.queue().writer();
        let sql = format!("PRAGMA max_page_count = {pages}");
        writer.connection_mut().query_row(&sql, [], |_| Ok(())).unwrap();
    };
    set_limit("1"); // SQLite interprets this as "no more pages than the file has".
    let large = write("c", run(2), one.result(), &["two", &"x".repeat(100_000)]);
    let error = store.append(Slot::unbounded(), vec![large.clone()]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::StorageFull { .. }), "{error:?}");
    assert!(error.source.is_retryable());
    assert!(source_text(&error).contains("free space"), "{error:?}");
    assert_eq!(fixture.texts(&key("c")).await, ["one"]);
    set_limit("1000000");
    store.append(Slot::unbounded(), vec![large]).await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await.len(), 3);
    assert!(fixture.is_intact());
}

#[tokio::test]
async fn a_write_that_fails_on_a_full_disk_causes_a_checkpoint_of_the_log() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]);
    fixture.submit(vec![one.clone()]).await.await.unwrap();
    let address = format!("file:{}?immutable=1", fixture.folder.path().join("chat.db").display());
    // Reads the database file without its log.
    let in_file = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let file = Connection::open_with_flags(&address, flags).unwrap();
        let count = "SELECT count(*) FROM messages";
        file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(in_file(), 0);
    {
        let writer = &mut fixture.store.queue().writer();
        let sql = "PRAGMA max_page_count = 1";
        writer.connection_mut().query_row(sql, [], |_| Ok(())).unwrap();
    }
    let large = write("c", run(2), one.result(), &[&"x".repeat(100_000)]);
    let error = fixture.submit(vec![large]).await.await.unwrap_err();
    assert!(matches!(error.source, StoreError::StorageFull { .. }), "{error:?}");
    fixture.store.checkpoints().settle();
    assert_eq!(in_file(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_fail_with_read_only_until_the_connection_may_write_again() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let set = |value: &str| {
        let writer = &mut store.queue().writer();
        writer.connection_mut().pragma_update(None, "query_only", value).unwrap();
    };
    set("ON");
    let one = first("c", &["one"]);
    let error = store.append(Slot::unbounded(), vec![one.clone()]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::ReadOnly), "{error:?}");
    set("OFF");
    store.append(Slot::unbounded(), vec![one]).await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["one"]);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn the_writer_does_not_reopen_its_connection_on_a_file_that_was_replaced() {
    let (fixture, other) = (Fixture::new().await, Fixture::new().await);
    let store = &fixture.store;
    let one = first("c", &["one"]);
    store.append(Slot::unbounded(), vec![one.clone()]).await.unwrap();
    other.store.close().await.unwrap();
    // Closing the writer's connection makes the next write open the path again.
    store.queue().writer().release();
    let file = |fixture: &Fixture| fixture.folder.path().join("chat.db");
    std::fs::rename(file(&other), file(&fixture)).unwrap();
    let two = write("c", run(1), one.result(), &["two"]);
    let error = store.append(Slot::unbounded(), vec![two]).await.unwrap_err();
    assert!(is_retryable(&error), "{error:?}");
    assert!(source_text(&error).contains("replaced"), "{error:?}");
}

#[tokio::test]
async fn a_failed_commit_acknowledges_no_write_of_its_group() {
    let fixture = Fixture::new().await;
    let refuse = |refuse: Option<fn() -> bool>| {
        fixture.store.queue().writer().connection_mut().commit_hook(refuse).unwrap();
    };
    refuse(Some(|| true));
    let store = &fixture.store;
    let one = first("a", &["one"]);
    let rival = write("a", run(9), Revision::ABSENT, &["rival"]);
    let held = hold_the_lead(store).await;
    // The transaction of the group fails, and then the transaction of each write. The second
    // submission must not report a conflict with the first write, because the first write is not
    // stored.
    let tickets = [vec![one.clone(), first("b", &["b"])], vec![rival]]
        .map(|writes| store.append(unbounded(), writes));
    drop(held);
    for ticket in tickets {
        let error = ticket.await.unwrap_err();
        assert_eq!(error.completed, 0);
        assert!(matches!(error.source, StoreError::Backend { .. }), "{error:?}");
    }
    refuse(None);
    for id in ["a", "b", "z"] {
        assert_eq!(fixture.store.head(&key(id)).await.unwrap().revision, Revision::ABSENT);
    }
    assert_eq!(fixture.store.statistics().writes, 0);
    fixture.submit(vec![one]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("a")).await, ["one"]);
}

#[tokio::test]
async fn the_other_submissions_of_a_group_are_stored_if_sqlite_refuses_a_write() {
    let fixture = Fixture::new().await;
    fixture
        .other()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN NEW.body LIKE '%poison%'
             BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END",
        )
        .unwrap();
    let store = &fixture.store;
    let a = first("a", &["one"]);
    let a_after = write("a", run(1), a.result(), &["two", "poison"]);
    let held = hold_the_lead(store).await;
    let good = store.append(unbounded(), vec![first("b", &["b"])]);
    let bad = store.append(unbounded(), vec![a.clone(), a_after, first("d", &["never tried"])]);
    let late = store.append(unbounded(), vec![first("c", &["c"])]);
    drop(held);
    good.await.unwrap();
    late.await.unwrap();
    let error = bad.await.unwrap_err();
    assert_eq!(error.completed, 1);
    assert!(matches!(error.source, StoreError::Backend { retryable: false, .. }), "{error:?}");
    assert_eq!(fixture.texts(&key("a")).await, ["one"]);
    assert_eq!(fixture.texts(&key("b")).await, ["b"]);
    assert_eq!(fixture.texts(&key("c")).await, ["c"]);
    assert!(fixture.texts(&key("d")).await.is_empty());
    assert_eq!(store.statistics().writes, 4);
}

#[tokio::test]
async fn the_other_submissions_of_a_group_are_stored_if_a_write_conflicts() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let held = hold_the_lead(store).await;
    let one = store.append(unbounded(), vec![first("a", &["one"])]);
    let write = write("a", run(9), Revision::ABSENT, &["rival"]);
    let rival = store.append(unbounded(), vec![write, first("d", &["not tried"])]);
    let other = store.append(unbounded(), vec![first("b", &["b"])]);
    drop(held);
    one.await.unwrap();
    other.await.unwrap();
    let error = rival.await.unwrap_err();
    assert!(matches!(&error.source, StoreError::Conflict(conflict)
        if conflict.found == first("a", &["one"]).result()));
    assert_eq!(fixture.texts(&key("a")).await, ["one"]);
    assert!(fixture.texts(&key("d")).await.is_empty());
    assert_eq!(store.statistics().commits, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thread_executes_the_write_of_a_caller_that_has_found_the_file_locked() {
    let fixture = Fixture::new().await;
    let other = fixture.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let one = first("c", &["one"]);
    let two = write("c", run(1), one.result(), &["two"]);
    let mut ticket = fixture.store.append(Slot::unbounded(), vec![one]);
    let mut later = fixture.store.append(Slot::unbounded(), vec![two]);
    assert!(is_open(&mut ticket) && is_open(&mut later));
    other.execute_batch("COMMIT").unwrap();
    ticket.await.unwrap();
    later.await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["one", "two"]);
}

fn queued(writes: Vec<Write>) -> (Submission, Ticket) {
    Submission::append(unbounded(), writes, &Arc::new(ByteBudget::new(usize::MAX))).queued()
}

#[tokio::test]
async fn a_write_to_a_file_that_stays_locked_fails_with_a_retryable_error() {
    let fixture = Fixture::new().await;
    let other = fixture.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (submission, outcome) = queued(vec![first("c", &["one"])]);
    let mut group = [submission];
    let lock_timeout = Duration::from_millis(1);
    fixture.store.queue().writer().write(&mut group, lock_timeout).unwrap();
    group.into_iter().for_each(Submission::resolve);
    let error = outcome.await.unwrap_err();
    assert!(is_retryable(&error), "{error:?}");
    assert!(source_text(&error).contains("another process"), "{error:?}");
    other.execute_batch("COMMIT").unwrap();
    fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
}

#[tokio::test]
async fn a_writer_without_a_connection_opens_a_new_connection() {
    let fixture = Fixture::new().await;
    fixture.store.queue().writer().release();
    fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["one"]);
}

#[tokio::test]
async fn an_append_after_the_largest_sequence_number_of_a_conversation_is_an_error() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]);
    fixture.submit(vec![one.clone()]).await.await.unwrap();
    let last = u64::from(u32::MAX);
    fixture
        .other()
        .execute("UPDATE messages SET place = (place >> 32 << 32) + ?1", [last.cast_signed()])
        .unwrap();
    let expected = Revision { sequence: last, ..one.result() };
    let more = Write::new(
        key("c"),
        MessageId { run: run(2), index: 0 },
        expected,
        [Message::user("more").into()],
    );
    let error = fixture.submit(vec![more]).await.await.unwrap_err();
    assert!(matches!(error.source, StoreError::Backend { retryable: false, .. }), "{error:?}");
    let change = Write::new(key("c"), MessageId { run: run(2), index: 0 }, expected, [])
        .with_service_id(ServiceIdChange::Set("s".into()));
    fixture.submit(vec![change]).await.await.unwrap();
}

#[tokio::test]
async fn the_error_of_a_load_names_the_message_that_cannot_be_decoded() {
    let fixture = Fixture::new().await;
    fixture.submit(vec![first("c", &["one", "two", "three"])]).await.await.unwrap();
    let bodies =
        ["'{\"v\":1,\"role\":\"user\"}'", "'{\"v\":99}'", "'no JSON'", "CAST(x'7bff7d' AS TEXT)"];
    for body in bodies {
        let sql = format!("UPDATE messages SET body = {body} WHERE place & 4294967295 = 2");
        fixture.other().execute(&sql, []).unwrap();
        let error = fixture.store.load(&key("c")).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Undecodable { key: found, sequence: 2, .. }
                if *found == key("c")),
            "{body}: {error:?}"
        );
    }
    fixture.other().execute("DELETE FROM messages WHERE place & 4294967295 = 2", []).unwrap();
    let error = fixture.store.load(&key("c")).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    // Writes and reads of other conversations still succeed.
    fixture.submit(vec![first("d", &["d"])]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("d")).await, ["d"]);
}

#[tokio::test]
async fn a_damaged_page_is_reported_as_damage() {
    let fixture = Fixture::new().await;
    let large = "x".repeat(3_000);
    let texts = vec![large.as_str(); 20];
    fixture.submit(vec![first("c", &texts)]).await.await.unwrap();
    fixture.store.close().await.unwrap();
    let path = fixture.folder.path().join("chat.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // The first four pages contain the schema and the conversations.
    bytes[4 * 4096..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let error = fixture.store.load(&key("c")).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn only_the_first_write_that_is_retried_alone_waits_for_a_locked_file() {
    let fixture = Fixture::new().await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN NEW.body LIKE '%poison%'
                  BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END";
    fixture.other().execute_batch(refuse).unwrap();
    let other = fixture.other();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    // When the group is rolled back, another connection acquires the write lock.
    let hook = move |event: TraceEvent<'_>| match event {
        TraceEvent::Stmt(_, "BEGIN IMMEDIATE") => {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        TraceEvent::Profile(statement, _) if statement.sql() == "ROLLBACK" => {
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
        }
        _ => {}
    };
    let events = TraceEventCodes::SQLITE_TRACE_STMT | TraceEventCodes::SQLITE_TRACE_PROFILE;
    let (mut group, outcomes): (Vec<_>, Vec<_>) =
        ["a", "b", "c"].map(|id| queued(vec![first(id, &["one", "poison"])])).into_iter().unzip();
    {
        let writer = &mut fixture.store.queue().writer();
        writer.connection_mut().trace_v2(events, Some(hook)).unwrap();
        writer.write(&mut group, Duration::from_millis(1)).unwrap();
    }
    group.into_iter().for_each(Submission::resolve);
    for outcome in outcomes {
        let error = outcome.await.unwrap_err();
        assert!(error.completed == 0 && is_retryable(&error), "{error:?}");
    }
    assert_eq!(begun.load(Ordering::Relaxed), 2, "the group, and its first write alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thread_retries_the_writes_of_a_caller_one_by_one_after_a_rollback() {
    let fixture = Fixture::new().await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN NEW.body LIKE '%poison%'
                  BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END";
    fixture.other().execute_batch(refuse).unwrap();
    let other = Arc::new(Mutex::new(fixture.other()));
    // When the caller's write is rolled back, another connection acquires the write lock.
    let (taking, mut is_taken) = (other.clone(), false);
    let hook = move |event: TraceEvent<'_>| {
        if let TraceEvent::Profile(statement, _) = event
            && statement.sql() == "ROLLBACK"
            && !mem::replace(&mut is_taken, true)
        {
            taking.lock().unwrap().execute_batch("BEGIN IMMEDIATE").unwrap();
        }
    };
    let events = TraceEventCodes::SQLITE_TRACE_PROFILE;
    fixture.store.queue().writer().connection_mut().trace_v2(events, Some(hook)).unwrap();
    let one = first("c", &["one"]);
    let writes = vec![one.clone(), write("c", run(1), one.result(), &["poison"])];
    let mut ticket = fixture.store.append(Slot::unbounded(), writes);
    assert!(is_open(&mut ticket));
    other.lock().unwrap().execute_batch("COMMIT").unwrap();
    let error = ticket.await.unwrap_err();
    assert!(error.completed == 1 && !is_retryable(&error), "{error:?}");
    assert_eq!(fixture.texts(&key("c")).await, ["one"]);
    assert_eq!(fixture.store.statistics().writes, 1);
}

#[test]
fn opening_is_retried_only_while_the_file_is_locked() {
    let locked =
        || OpenError::Locked { path: "chat.db".into(), source: Classified::retryable("locked") };
    let attempts = |lock_timeout, mut outcomes: Vec<Result<(), OpenError>>| {
        let before = outcomes.len();
        let outcome = while_locked(lock_timeout, || outcomes.remove(0));
        (outcome, before - outcomes.len())
    };
    let (outcome, tried) = attempts(LOCK_TIMEOUT, vec![Err(locked()), Err(locked()), Ok(())]);
    assert!(outcome.is_ok() && tried == 3);
    let missing = OpenError::Missing { path: "chat.db".into() };
    let (outcome, tried) = attempts(LOCK_TIMEOUT, vec![Err(missing), Ok(())]);
    assert!(matches!(outcome, Err(OpenError::Missing { .. })) && tried == 1);
    let (outcome, tried) = attempts(Duration::ZERO, vec![Err(locked()), Ok(())]);
    assert!(outcome.unwrap_err().is_retryable() && tried == 1);
}
