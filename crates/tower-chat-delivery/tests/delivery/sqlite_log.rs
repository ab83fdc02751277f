//! Tests of the log in a SQLite file.

use std::time::Duration;

use tower_chat::{MemoryStore, PersistenceMode};
use tower_chat_delivery::{
    DetachedRunsLayer, Erase, RunState, SqliteUpdateLog, StoredUpdate, UpdateLog, UpdatePosition,
};
use tower_chat_testkit::Step;

use crate::support::{Server, deltas, request, sketch};

mod contract {
    use tower_chat_delivery::SqliteUpdateLog;

    tower_chat_delivery::update_log_contract! {
        let folder = tempfile::tempdir().unwrap();
        options => SqliteUpdateLog::open_with(folder.path().join("updates.db"), options)
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn a_run_can_be_followed_and_stopped_through_a_second_connection_to_its_log_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("updates.db");
    let runs = DetachedRunsLayer::new(SqliteUpdateLog::open(&path).await.unwrap())
        .with_lease(Duration::from_millis(300));
    let step = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    drop(server.call(request).await.unwrap());
    let other = DetachedRunsLayer::new(SqliteUpdateLog::open(&path).await.unwrap());
    let reader = other.attach(&run, UpdatePosition::START).await.unwrap();
    let state = other.stop(&run).await.unwrap();
    assert_eq!(state, RunState::Open { attempt: 1, stop_requested: true });
    let events = sketch(&crate::support::rest(reader).await);
    assert_eq!(events, ["Take ", "message: Take ", "finish", "completed"]);
}

#[tokio::test]
async fn updates_survive_their_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("updates.db");
    let (_, run) = request();
    let first = UpdatePosition::new(1, 0);
    let log = SqliteUpdateLog::open(&path).await.unwrap();
    log.begin(&run, 1, Duration::from_secs(15)).await.unwrap();
    log.append(&run, first, &[StoredUpdate::new("a")], None).await.unwrap();
    drop(log);
    let log = SqliteUpdateLog::open(&path).await.unwrap();
    let page = log.read(&run, UpdatePosition::START, 10).await.unwrap();
    assert_eq!(page.updates[0].update.data(), "a");
}

#[tokio::test]
async fn erased_updates_are_not_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("updates.db");
    let (_, run) = request();
    let log = SqliteUpdateLog::open(&path).await.unwrap();
    log.begin(&run, 1, Duration::from_secs(15)).await.unwrap();
    let secret = StoredUpdate::new("a secret sentence");
    log.append(&run, UpdatePosition::new(1, 0), &[secret], None).await.unwrap();
    log.erase(Erase::Scope("alice")).await.unwrap();
    drop(log); // closing the last connection copies the write-ahead log into the file
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(8).any(|window| window == b"a secret"));
}

#[tokio::test]
async fn a_file_of_another_kind_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    tower_chat::sqlite::SqliteStore::open(&path).await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = SqliteUpdateLog::open(&path).await.unwrap_err();
    assert!(!error.is_retryable());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database, but a text that is longer than a header").unwrap();
    assert!(SqliteUpdateLog::open(&text).await.is_err());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("updates.db");
    let _log = SqliteUpdateLog::open(&path).await.unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
    }
}
