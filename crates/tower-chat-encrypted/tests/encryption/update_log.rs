//! Tests of the encrypted update log.

use std::{fs, sync::Arc, time::Duration};

use tower_chat_core::{ConversationKey, RunId};
use tower_chat_delivery::{
    MemoryUpdateLog, RunEnd, RunKey, RunState, SqliteUpdateLog, StoredUpdate, UpdateLog,
    UpdateLogError, UpdatePosition,
};
use tower_chat_encrypted::{
    EncryptedUpdateLog, EncryptionError, ErasableKeys, MasterKeys, SecretKey,
};

mod contract {
    use tower_chat_delivery::MemoryUpdateLog;
    use tower_chat_encrypted::EncryptedUpdateLog;
    tower_chat_delivery::update_log_contract!(
        options => EncryptedUpdateLog::new(MemoryUpdateLog::with_options(options), super::keys())
    );
}

const LEASE: Duration = Duration::from_secs(15);

fn keys() -> MasterKeys {
    MasterKeys::new("first", SecretKey::random().unwrap()).unwrap()
}

fn new_run() -> RunKey {
    RunKey::new(ConversationKey::new("alice", "wardrobe"), RunId::new())
}

fn failed() -> RunEnd {
    RunEnd::Failed { message: "secret failure".to_owned() }
}

/// Records a failed run with two updates in the log.
async fn fill(log: &dyn UpdateLog, run: &RunKey) {
    log.begin(run, 1, LEASE).await.unwrap();
    let updates = ["secret one", "secret two"].map(StoredUpdate::new);
    log.append(run, UpdatePosition::new(1, 0), &updates, Some(&failed())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_contains_no_updates_or_failures_in_plaintext() {
    let folder = tempfile::tempdir().unwrap();
    let log = SqliteUpdateLog::open(folder.path().join("updates.db")).await.unwrap();
    let run = new_run();
    let contains = |text: &str| {
        let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let mut contents = files.map(|file| fs::read(file).unwrap());
        contents.any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    fill(&EncryptedUpdateLog::new(log.clone(), keys()), &run).await;
    assert!(contains("tower-chat-3:first:"));
    assert!(!contains("secret"));
    fill(&log, &new_run()).await;
    assert!(contains("secret"), "the search does not find plaintext");
}

#[tokio::test]
async fn the_update_log_returns_the_decrypted_failure_of_a_run() {
    let log = EncryptedUpdateLog::new(MemoryUpdateLog::new(), keys());
    let run = new_run();
    fill(&log, &run).await;
    let closed = RunState::Closed { attempt: 1, end: failed() };
    assert_eq!(log.read(&run, UpdatePosition::START, 0).await.unwrap().state, closed);
    assert_eq!(log.interrupt(&run).await.unwrap(), closed);
    assert_eq!(log.request_stop(&run).await.unwrap(), closed);
    for refused in [
        log.begin(&run, 1, LEASE).await,
        log.renew(&run, 1, LEASE).await.map(drop),
        log.append(&run, UpdatePosition::new(1, 2), &[StoredUpdate::new("late")], None).await,
    ] {
        let Err(UpdateLogError::NotOwner { found, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(found, closed);
    }
}

/// Returns the reason why the updates of a run cannot be read.
async fn reason(log: &dyn UpdateLog, run: &RunKey) -> String {
    let read = log.read(run, UpdatePosition::START, 10).await;
    let Err(UpdateLogError::Undecodable { source, .. }) = read else { panic!("{read:?}") };
    let error = source.downcast_ref::<EncryptionError>().unwrap();
    format!("{error:?}").split([' ', '(']).next().unwrap().to_owned()
}

#[tokio::test]
async fn updates_open_only_at_their_position_in_their_run() {
    let inner = MemoryUpdateLog::new();
    let log = EncryptedUpdateLog::new(inner.clone(), keys());
    let (run, other, plain) = (new_run(), new_run(), new_run());
    for run in [&run, &other, &plain] {
        log.begin(run, 1, LEASE).await.unwrap();
    }
    let updates = ["one", "two"].map(StoredUpdate::new);
    log.append(&run, UpdatePosition::new(1, 0), &updates, None).await.unwrap();
    let page = inner.read(&run, UpdatePosition::START, 10).await.unwrap();
    let mut sealed: Vec<_> = page.updates.into_iter().map(|update| update.update).collect();
    inner.append(&other, UpdatePosition::new(1, 0), &sealed, None).await.unwrap();
    assert_eq!(reason(&log, &other).await, "NotSealed");
    inner.append(&plain, UpdatePosition::new(1, 0), &updates, None).await.unwrap();
    assert_eq!(reason(&log, &plain).await, "NotSealed");
    log.begin(&run, 2, LEASE).await.unwrap();
    sealed.reverse();
    inner.append(&run, UpdatePosition::new(2, 0), &sealed, None).await.unwrap();
    assert_eq!(reason(&log, &run).await, "Moved");
}

#[tokio::test]
async fn an_erased_key_erases_the_updates_of_its_conversation() {
    let keys = Arc::new(ErasableKeys::new());
    let log = EncryptedUpdateLog::new(MemoryUpdateLog::new(), keys.clone());
    let run = new_run();
    fill(&log, &run).await;
    assert!(keys.erase(&run.conversation));
    assert_eq!(reason(&log, &run).await, "Key");
    // The process that executed the run still receives this error.
    let renewed = log.renew(&run, 1, LEASE).await;
    let Err(UpdateLogError::NotOwner { found, .. }) = renewed else { panic!("{renewed:?}") };
    let message = "the error of the run cannot be decrypted".to_owned();
    assert_eq!(found, RunState::Closed { attempt: 1, end: RunEnd::Failed { message } });
}
