//! Tests of files and folders that the process has no permission to write or read. The tests run as
//! a user other than root, because permissions do not restrict root.
//!
//! These tests are a separate test program, because each test executes a copy of it. A child
//! process that another test starts while the copy is written would inherit the open file, and
//! Linux does not execute a file that is open for writing.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

#[path = "sqlite/common/mod.rs"]
mod common;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use common::{append, key, texts, write};
use tempfile::TempDir;
use tower_chat_core::{
    RunId,
    store::{HistoryStore, Revision, StoreError},
};
use tower_chat_sqlite::{BackupError, OpenError, SqliteStore};

const HELD: &str = "TOWER_CHAT_SQLITE_HELD_TO_PERMISSIONS";
const NOBODY: u32 = 65534;

/// Returns whether permissions restrict the current user.
fn is_held_to_permissions() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    allow(file.path(), 0o444);
    fs::OpenOptions::new().write(true).open(file.path()).is_err()
}

/// Runs a test of this binary as the current user, or as `nobody` if the current user is root.
fn run_held(test: &str) {
    /// Locked while a test copies the program and starts the copy.
    static COPIES: Mutex<()> = Mutex::new(());
    let alone = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    // The child executes a copy of this program, because the user `nobody` may have no access to
    // the folder of the program.
    let folder = tempfile::tempdir().unwrap();
    allow(folder.path(), 0o777);
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", test, "--ignored", "--nocapture"]);
    child.env(HELD, folder.path()).current_dir(folder.path());
    if !is_held_to_permissions() {
        child.uid(NOBODY).gid(NOBODY);
    }
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(alone);
    let output = child.wait_with_output().unwrap();
    let [printed, complained] =
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}\n{complained}");
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// In the child process, creates a folder and the path of a store in it. Returns `None` if no other
/// test has started this process.
fn child() -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir_in(std::env::var_os(HELD)?).unwrap();
    assert!(is_held_to_permissions());
    let path = folder.path().join("chat.db");
    Some((folder, path))
}

/// Creates a store with one message.
async fn make(path: &Path) -> (SqliteStore, Revision) {
    let store = SqliteStore::open(path).await.unwrap();
    let one = write(&key("c"), RunId::new(), Revision::ABSENT, &["one"]);
    let at = append(&store, vec![one]).await.unwrap();
    (store, at)
}

#[test]
fn a_store_without_write_permission_is_read_only() {
    run_held("child_may_not_write");
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn child_may_not_write() {
    let Some((folder, path)) = child() else { return };
    make(&path).await.0.close().await.unwrap();
    allow(&path, 0o444);
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "a file: {error:?}");
    let store = SqliteStore::options().with_read_only(true).open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    drop(store);
    allow(&path, 0o644);
    for name in ["chat.db-wal", "chat.db-shm"] {
        let _ = fs::remove_file(folder.path().join(name));
    }
    allow(folder.path(), 0o555);
    let made = SqliteStore::open(folder.path().join("new.db")).await;
    let opened = SqliteStore::open(&path).await;
    // Closing the store has copied the log into the file.
    let store = SqliteStore::options().with_read_only(true).open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    drop(store);
    allow(folder.path(), 0o755);
    for outcome in [made, opened] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, OpenError::ReadOnly { .. }), "a folder: {error:?}");
    }
    assert_eq!(texts(&SqliteStore::open(&path).await.unwrap(), &key("c")).await, ["one"]);
}

#[test]
fn acknowledged_writes_are_stored_although_an_open_store_loses_its_permissions() {
    run_held("child_loses_permissions");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_loses_permissions() {
    let Some((folder, path)) = child() else { return };
    let (store, at) = make(&path).await;
    allow(&path, 0o000);
    allow(folder.path(), 0o555);
    // The store has not opened a connection for reading yet, and cannot open one now.
    let error = store.load(&key("c")).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { retryable: true, .. }), "{error:?}");
    let error = store.backup(folder.path().join("copy.db")).await.unwrap_err();
    assert!(matches!(error, BackupError::ReadOnly { .. }), "{error:?}");
    // The writer can still write to the file that it has open, and acknowledged writes are stored.
    let at = append(&store, vec![write(&key("c"), RunId::new(), at, &["two"])]).await.unwrap();
    let second = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(second, OpenError::ReadOnly { .. } | OpenError::Io { .. }), "{second:?}");
    allow(&path, 0o600);
    assert_eq!(texts(&store, &key("c")).await, ["one", "two"]);
    // Closing the store cannot remove the log. The next process reads it.
    append(&store, vec![write(&key("c"), RunId::new(), at, &["three"])]).await.unwrap();
    store.close().await.unwrap();
    allow(folder.path(), 0o755);
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one", "two", "three"]);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_new_file_is_accessible_only_to_its_owner_and_an_existing_file_keeps_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let others =
        |name: &str| ["", "-wal", "-shm"].map(|end| folder.path().join(format!("{name}{end}")));
    for name in ["chat.db", "a b%?#.db"] {
        let path = folder.path().join(name);
        let (store, _) = make(&path).await;
        assert_eq!(others(name).map(|path| mode(&path)), [0o600; 3], "{name}");
        store.close().await.unwrap();
    }
    let path = folder.path().join("chat.db");
    allow(&path, 0o640);
    let store = SqliteStore::open(&path).await.unwrap();
    let one = write(&key("d"), RunId::new(), Revision::ABSENT, &["one"]);
    append(&store, vec![one]).await.unwrap();
    assert_eq!(others("chat.db").map(|path| mode(&path)), [0o640; 3]);
    store.close().await.unwrap();
    // The store does not change the permissions of an existing empty file.
    let empty = folder.path().join("empty.db");
    fs::File::create(&empty).unwrap();
    allow(&empty, 0o604);
    make(&empty).await.0.close().await.unwrap();
    assert_eq!(mode(&empty), 0o604);
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a b%?#.db", "chat.db", "empty.db"]);
}

#[tokio::test]
async fn leftover_temporary_files_do_not_make_a_new_file_accessible_to_other_users() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..1000 {
        let name = format!(".new.db.{}-{number}.mode", std::process::id());
        fs::write(folder.path().join(name), "").unwrap();
    }
    let path = folder.path().join("new.db");
    make(&path).await.0.close().await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}
