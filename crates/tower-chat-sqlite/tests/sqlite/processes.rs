//! Tests of two processes that use one file.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{append, key, texts, write};
use rusqlite::{Connection, ErrorCode};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        HistoryStore, Revision, StoreError,
        author::{AppendError, Write},
    },
};
use tower_chat_sqlite::{OpenError, SqliteStore};

const PATH: &str = "TOWER_CHAT_SQLITE_PROCESS_PATH";
const NAME: &str = "TOWER_CHAT_SQLITE_PROCESS_NAME";
const APPENDS: usize = 40;

/// Runs a test of this binary in two processes that open the same file. The file does not exist
/// before.
fn run_two(test: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let children = ["left", "right"].map(|name| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("processes::{test}"), "--ignored", "--nocapture"])
            .env(PATH, &path)
            .env(NAME, name)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    });
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    folder
}

/// In a child process, returns the store, the key of a conversation that only this process writes,
/// and the name of the process. Returns `None` if no other test has started this process.
async fn child() -> Option<(SqliteStore, ConversationKey, String)> {
    let (path, name) = (std::env::var_os(PATH)?, std::env::var(NAME).ok()?);
    let store = loop {
        match SqliteStore::open(&path).await {
            Err(OpenError::Locked { .. }) => {}
            opened => break opened.unwrap(),
        }
    };
    Some((store, key(&name), name))
}

/// Appends a write, and repeats the append after retryable errors: the other process may get the
/// lock again and again.
async fn append_patiently(store: &SqliteStore, write: Write) -> Result<Revision, StoreError> {
    loop {
        match append(store, vec![write.clone()]).await {
            Err(AppendError { source: StoreError::Backend { retryable: true, .. }, .. }) => {}
            outcome => return outcome.map_err(|error| error.source),
        }
    }
}

#[tokio::test]
async fn two_processes_append_to_separate_conversations_of_one_file() {
    let folder = run_two("child_appends_to_its_own_conversation");
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let expected: Vec<_> = (0..APPENDS).map(|number| number.to_string()).collect();
    for name in ["left", "right"] {
        assert_eq!(texts(&store, &key(name)).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_appends_to_its_own_conversation() {
    let Some((store, key, _)) = child().await else { return };
    let (run, mut revision) = (RunId::new(), Revision::ABSENT);
    for number in 0..APPENDS {
        let write = write(&key, run, revision, &[&number.to_string()]);
        revision = append_patiently(&store, write).await.unwrap();
        assert_eq!(store.head(&key).await.unwrap().revision, revision);
    }
}

#[tokio::test]
async fn each_append_of_two_conflicting_processes_is_stored_exactly_once() {
    let folder = run_two("child_appends_to_the_shared_conversation");
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let shared = texts(&store, &key("shared")).await;
    // Each process has stopped after `APPENDS` successful appends. The other appends were
    // conflicts.
    assert_eq!(shared.len(), 2 * APPENDS);
    for name in ["left", "right"] {
        let own: Vec<_> = shared.iter().filter_map(|text| text.strip_prefix(name)).collect();
        let expected: Vec<_> = (0..APPENDS).map(|number| number.to_string()).collect();
        assert_eq!(own, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_appends_to_the_shared_conversation() {
    let Some((store, _, name)) = child().await else { return };
    let key = key("shared");
    let run = RunId::new();
    let mut won = 0;
    let mut revision = store.head(&key).await.unwrap().revision;
    while won < APPENDS {
        let write = write(&key, run, revision, &[&format!("{name}{won}")]);
        match append_patiently(&store, write).await {
            Ok(after) => (won, revision) = (won + 1, after),
            Err(StoreError::Conflict(conflict)) => revision = conflict.found,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_two_conflicting_writes_from_two_stores_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let (left, right) = tokio::join!(SqliteStore::open(&path), SqliteStore::open(&path));
    let (left, right) = (left.unwrap(), right.unwrap());
    for number in 0..20 {
        let key = key(&number.to_string());
        let task = |store: &SqliteStore, text: &'static str| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                let write = write(&key, RunId::new(), Revision::ABSENT, &[text]);
                append_patiently(&store, write).await
            })
        };
        let (a, b) = (task(&left, "left"), task(&right, "right"));
        let outcome = match (a.await.unwrap(), b.await.unwrap()) {
            (Ok(_), Err(lost)) => ("left", lost),
            (Err(lost), Ok(_)) => ("right", lost),
            both => panic!("{both:?}"),
        };
        assert!(matches!(outcome.1, StoreError::Conflict(_)), "{:?}", outcome.1);
        assert_eq!(texts(&right, &key).await, [outcome.0]);
    }
}

/// If the store opened and closed the file without SQLite, the system would release all locks of
/// the process on the file (https://sqlite.org/howtocorrupt.html, 2.2).
#[tokio::test]
async fn opening_a_file_does_not_release_other_locks_of_this_process_on_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE").unwrap();
    drop(SqliteStore::options().with_read_only(true).open(&path).await.unwrap());
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child_finds_the_file_locked", "--ignored"])
        .env(PATH, &path)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "the lock was lost");
    connection.execute_batch("COMMIT").unwrap();
}

#[test]
#[ignore = "the child of another test"]
fn child_finds_the_file_locked() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    let error = connection.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
}

/// A limit on the file size makes the system refuse a write to the log, in the middle of a
/// transaction.
#[cfg(unix)]
#[tokio::test]
async fn acknowledged_writes_are_stored_when_the_file_reaches_its_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let output = Command::new("sh")
        // The unit of the limit is a block of 512 bytes. The shell ignores the signal `SIGXFSZ`, so
        // that writing returns an error instead.
        .args(["-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "processes::child_appends_until_the_file_may_not_grow",
            "--ignored",
            "--nocapture",
        ])
        .env(PATH, &path)
        .env(NAME, "limited")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout).unwrap();
    let acknowledged: usize = output
        .lines()
        .find_map(|line| line.split_once("acknowledged="))
        .and_then(|(_, number)| number.parse().ok())
        .unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let history = store.load(&key("limited")).await.unwrap();
    assert_eq!(history.messages.len(), acknowledged);
    let check = Connection::open(&path).unwrap();
    let check: String = check.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let more = write(&key("limited"), RunId::new(), history.head.revision, &["more"]);
    append(&store, vec![more]).await.unwrap();
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_appends_until_the_file_may_not_grow() {
    let Some((store, key, _)) = child().await else { return };
    let (run, mut revision) = (RunId::new(), Revision::ABSENT);
    let text = "x".repeat(20_000);
    let error = loop {
        let write = write(&key, run, revision, &[&text]);
        match append(&store, vec![write]).await {
            Ok(after) => revision = after,
            Err(error) => break error,
        }
    };
    assert!(error.source.is_retryable(), "{error:?}");
    assert!(revision.sequence > 0);
    assert_eq!(store.load(&key).await.unwrap().head.revision, revision);
    let small = write(&key, run, revision, &["small"]);
    if let Ok(after) = append(&store, vec![small]).await {
        revision = after;
    }
    println!("\nacknowledged={}", revision.sequence);
}
