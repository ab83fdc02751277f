//! Tests that a write is stored completely or not at all if the process is aborted before or after
//! any of its statements.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};
use tower_chat_core::store::{
    HistoryStore, Revision, ServiceIdChange,
    author::{Slot, Write},
};

use super::{first, key, run, texts, write};
use crate::{
    SqliteStore,
    schema::{self, Content},
};

const PATH: &str = "TOWER_CHAT_SQLITE_CRASH_PATH";
const AT: &str = "TOWER_CHAT_SQLITE_CRASH_AT";

/// Makes a connection abort the process at the beginning or the end of a statement. `at` is the
/// number of this moment, from 0.
fn abort_at(connection: &mut Connection, at: usize) {
    let seen = AtomicUsize::new(0);
    let events = TraceEventCodes::SQLITE_TRACE_STMT | TraceEventCodes::SQLITE_TRACE_PROFILE;
    let hook = move |_: TraceEvent<'_>| {
        if seen.fetch_add(1, Ordering::Relaxed) == at {
            std::process::abort();
        }
    };
    connection.trace_v2(events, Some(hook)).unwrap();
}

/// Runs a test of this binary as the child process that aborts. Returns whether the child ended
/// without an abort.
fn child_survives(test: &str, path: &Path, at: usize) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--test-threads=1"])
        .env(PATH, path)
        .env(AT, at.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    // A failed assertion ends the child with an exit code, and an abort ends it with a signal.
    assert_ne!(status.code(), Some(101), "an assertion in the child failed");
    status.success()
}

/// Returns the path of the store and the moment of the abort, in the child process only.
fn child() -> Option<(PathBuf, usize)> {
    Some((std::env::var_os(PATH)?.into(), std::env::var(AT).ok()?.parse().unwrap()))
}

/// Returns two writes to a conversation with one message, and one write to a new conversation.
fn submission() -> Vec<Write> {
    let before = first("old", &["one"]).result();
    let two = write("old", run(2), before, &["two", "three"])
        .with_service_id(ServiceIdChange::Set("service".into()));
    let four = write("old", run(2), two.result(), &["four"]);
    vec![two, four, first("new", &["hello", "again"])]
}

async fn crash_in_append(test: &str) {
    let mut at = 0;
    let mut left_nothing = 0;
    let mut left_everything = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let store = SqliteStore::open(&path).await.unwrap();
        store.append(Slot::unbounded(), vec![first("old", &["one"])]).await.unwrap();
        drop(store);

        let survived = child_survives(test, &path, at);

        let store = SqliteStore::open(&path).await.unwrap();
        let old = texts(&store, &key("old")).await;
        let new = texts(&store, &key("new")).await;
        match (old.len(), new.len()) {
            (1, 0) => left_nothing += 1,
            (4, 2) => left_everything += 1,
            half => panic!("aborted at {at}, the store holds {half:?} messages"),
        }
        store.append(Slot::unbounded(), submission()).await.unwrap();
        assert_eq!(texts(&store, &key("old")).await, ["one", "two", "three", "four"]);
        assert_eq!(texts(&store, &key("new")).await, ["hello", "again"]);
        let head = store.head(&key("old")).await.unwrap();
        assert_eq!(head.service_id.as_deref(), Some("service"));
        if survived {
            break;
        }
        at += 1;
    }
    // The submission executes 12 statements, with two moments each: BEGIN, three queries, six
    // inserts, an update and COMMIT.
    assert!(at >= 24, "only {at} moments were tried");
    assert!(left_nothing >= 23, "{left_nothing}");
    // The child that is aborted after COMMIT, and the child that is not aborted.
    assert_eq!(left_everything, 2);
}

#[tokio::test]
async fn an_append_by_its_caller_is_whole_or_absent_after_an_abort_at_any_statement() {
    crash_in_append("tests::crash::child_executes_its_appends_itself").await;
}

#[tokio::test]
async fn an_append_by_the_writer_thread_is_whole_or_absent_after_an_abort_at_any_statement() {
    crash_in_append("tests::crash::child_submits_its_appends_to_the_thread").await;
}

async fn append_until_abort(slot: Slot) {
    let Some((path, at)) = child() else { return };
    let store = SqliteStore::open(path).await.unwrap();
    abort_at(store.queue().writer().connection_mut(), at);
    store.append(slot, submission()).await.unwrap();
    // Closing the store would execute statements that do not belong to the append.
    std::process::exit(0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_executes_its_appends_itself() {
    append_until_abort(Slot::unbounded()).await;
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn child_submits_its_appends_to_the_thread() {
    append_until_abort(Slot::unbounded().without_blocking()).await;
}

#[tokio::test]
async fn a_file_opens_after_its_creation_was_aborted_at_any_statement() {
    let mut at = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let survived =
            child_survives("tests::crash::child_creates_or_migrates_the_file", &path, at);
        let store = SqliteStore::open(&path).await.unwrap();
        store.append(Slot::unbounded(), vec![first("new", &["hello"])]).await.unwrap();
        if survived {
            break;
        }
        at += 1;
    }
    assert!(at >= 12, "only {at} moments were tried");
}

#[tokio::test]
async fn an_older_file_is_unchanged_or_migrated_after_an_abort_at_any_statement() {
    let look = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
        let schema = connection
            .prepare("SELECT group_concat(name) FROM sqlite_schema")
            .unwrap()
            .query_row([], |row| row.get(0));
        (version.unwrap(), schema.unwrap())
    };
    for version in 1..schema::VERSION {
        let fixture = format!("{}/tests/fixtures/v{version}.db", env!("CARGO_MANIFEST_DIR"));
        let fixture = Path::new(&fixture);
        let (mut at, mut as_it_was, mut new) = (0, 0, 0);
        loop {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("chat.db");
            std::fs::copy(fixture, &path).unwrap();
            let before: (i64, String) = look(&path);
            let survived =
                child_survives("tests::crash::child_creates_or_migrates_the_file", &path, at);
            match look(&path) {
                left if left == before => as_it_was += 1,
                (schema::VERSION, _) => new += 1,
                half => panic!("aborted at {at}, the file is {half:?}"),
            }
            let store = SqliteStore::open(&path).await.unwrap();
            let support = tower_chat_core::ConversationKey::new("alice", "support");
            assert_eq!(texts(&store, &support).await, ["Where is my order?", ""]);
            assert!(store.check_integrity().await.unwrap().is_empty());
            if survived {
                break;
            }
            at += 1;
        }
        // Opening executes at least 7 statements, with two moments each.
        assert!(as_it_was >= 12 && new >= 2, "{as_it_was} unchanged, {new} migrated");
    }
}

#[test]
#[ignore = "the child of another test"]
fn child_creates_or_migrates_the_file() {
    let Some((path, at)) = child() else { return };
    let mut connection = Connection::open(path).unwrap();
    abort_at(&mut connection, at);
    let made = schema::migrate(&mut connection).unwrap();
    assert_eq!(made, Content::Store { version: schema::VERSION });
    std::process::exit(0);
}

#[tokio::test]
async fn a_repeated_write_is_acknowledged_only_at_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let append = |write| store.append(Slot::unbounded(), vec![write]);
    let one = first("c", &["one"]);
    let two = write("c", run(2), one.result(), &["two"]);
    append(one.clone()).await.unwrap();
    append(two.clone()).await.unwrap();
    assert_eq!(append(one.clone()).await.unwrap(), one.result());
    let counted = Arc::new(AtomicUsize::new(0));
    let rows = counted.clone();
    store
        .queue()
        .writer()
        .connection_mut()
        .update_hook(Some(move |_, _: &str, _: &str, _| {
            rows.fetch_add(1, Ordering::Relaxed);
        }))
        .unwrap();
    assert_eq!(append(two.clone()).await.unwrap(), two.result());
    assert_eq!(counted.load(Ordering::Relaxed), 0, "a repeated write wrote rows");
    let moved = write("c", run(2), Revision { sequence: 0, ..two.expected() }, &["two"]);
    append(moved).await.unwrap_err();
    assert_eq!(texts(&store, &key("c")).await, ["one", "two"]);
}
