//! Tests of a file that is moved, deleted, replaced or truncated while its store is open. The store
//! must not acknowledge a write that would be lost.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::{append, key, texts, write};
use tempfile::TempDir;
use tower_chat_core::{
    RunId,
    store::{HistoryStore, Revision, StoreError},
};
use tower_chat_sqlite::{BackupError, Durability, FileChange, FileMoved, SqliteStore};

/// Creates a store with one message in conversation `c`.
async fn store(name: &str) -> (TempDir, PathBuf, SqliteStore, Revision) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let store = SqliteStore::open(&path).await.unwrap();
    let one = write(&key("c"), RunId::new(), Revision::ABSENT, &["one"]);
    let at = append(&store, vec![one]).await.unwrap();
    (folder, path, store, at)
}

fn assert_moved(error: &StoreError) {
    let StoreError::Backend { source, retryable: true, .. } = error else { panic!("{error:?}") };
    assert!(source.is::<FileMoved>(), "{error:?}");
    assert!(source.to_string().contains("chat.db"), "{source}");
}

fn assert_changed(error: &StoreError, expected: FileChange) {
    assert_moved(error);
    let StoreError::Backend { source, .. } = error else { return };
    let found = source.downcast_ref::<FileMoved>().unwrap();
    assert_eq!(found.change, expected, "{found}");
}

async fn assert_refuses(store: &SqliteStore, at: Revision) {
    let two = write(&key("c"), RunId::new(), at, &["two"]);
    for _ in 0..2 {
        assert_moved(&append(store, vec![two.clone()]).await.unwrap_err().source);
        assert_moved(&store.load(&key("c")).await.unwrap_err());
        assert_moved(&store.delete(&key("c")).await.unwrap_err());
        assert_moved(&store.checkpoint().await.unwrap_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_continues_after_its_moved_file_is_restored() {
    let (folder, path, store, at) = store("chat.db").await;
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    let away = folder.path().join("away.db");
    fs::rename(&path, &away).unwrap();
    assert_refuses(&store, at).await;
    assert!(!path.exists(), "no new file is created at the path");
    let copied = store.backup(folder.path().join("copy.db")).await.unwrap_err();
    let BackupError::Store(copied) = copied else { panic!("{copied:?}") };
    assert_moved(&copied);
    fs::rename(&away, &path).unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    append(&store, vec![write(&key("c"), RunId::new(), at, &["two"])]).await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one", "two"]);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_file_was_deleted_refuses_writes_and_creates_no_file() {
    let (_folder, path, store, at) = store("chat.db").await;
    fs::remove_file(&path).unwrap();
    assert_refuses(&store, at).await;
    store.close().await.unwrap();
    assert!(!path.exists(), "no new file is created at the path");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_does_not_change_a_file_that_replaced_its_own_file() {
    let (_folder, path, store, at) = store("chat.db").await;
    let (_other_folder, other, other_store, _) = self::store("other.db").await;
    other_store.close().await.unwrap();
    let before = fs::read(&other).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_refuses(&store, at).await;
    store.close().await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_read_only_store_reports_that_its_file_was_moved() {
    let (_folder, path, writer, _) = store("chat.db").await;
    let reader = SqliteStore::options().with_read_only(true).open(&path).await.unwrap();
    assert_eq!(texts(&reader, &key("c")).await, ["one"]);
    fs::rename(&path, path.with_extension("away")).unwrap();
    assert_moved(&reader.load(&key("c")).await.unwrap_err());
    fs::rename(path.with_extension("away"), &path).unwrap();
    assert_eq!(texts(&reader, &key("c")).await, ["one"]);
    drop(writer);
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn truncate(path: &Path, to: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(to).unwrap();
}

/// A change of the files of an open store, and the change that the store reports.
type Attack = (&'static str, fn(&Path), FileChange);

const ATTACKS: &[Attack] = &[
    (
        "the log is deleted",
        |path| fs::remove_file(beside(path, "-wal")).unwrap(),
        FileChange::LogMoved,
    ),
    (
        "the log is replaced by a copy",
        |path| {
            let log = beside(path, "-wal");
            let copy = beside(path, "-copy");
            fs::copy(&log, &copy).unwrap();
            fs::rename(copy, log).unwrap();
        },
        FileChange::LogMoved,
    ),
    ("the log is emptied", |path| truncate(&beside(path, "-wal"), 0), FileChange::LogTruncated),
    (
        "the last byte of the log is cut off",
        |path| {
            let log = beside(path, "-wal");
            truncate(&log, fs::metadata(&log).unwrap().len() - 1);
        },
        FileChange::LogTruncated,
    ),
    (
        "the log is cut in half",
        |path| {
            let log = beside(path, "-wal");
            truncate(&log, fs::metadata(&log).unwrap().len() / 2);
        },
        FileChange::LogTruncated,
    ),
    ("the file is emptied", |path| truncate(path, 0), FileChange::Truncated),
    ("the file is truncated to one page", |path| truncate(path, 4096), FileChange::Truncated),
];

#[tokio::test(flavor = "multi_thread")]
async fn writes_fail_after_the_log_or_the_file_was_removed() {
    for (what, attack, expected) in ATTACKS {
        for durability in [Durability::Full, Durability::Normal] {
            for on_caller in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("chat.db");
                let options = SqliteStore::options().with_durability(durability);
                let store = options.with_work_on_caller(on_caller).open(&path).await.unwrap();
                let one = write(&key("c"), RunId::new(), Revision::ABSENT, &["one"]);
                let at = append(&store, vec![one]).await.unwrap();
                let two = write(&key("c"), RunId::new(), at, &["two"]);
                let at = append(&store, vec![two]).await.unwrap();
                attack(&path);
                for text in ["three", "four", "five", "six", "seven"] {
                    let next = write(&key("c"), RunId::new(), at, &[text]);
                    let error = append(&store, vec![next]).await.expect_err(what);
                    assert_changed(&error.source, *expected);
                }
                assert_changed(&store.delete(&key("c")).await.expect_err(what), *expected);
                drop(store.close().await);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_store_copies_the_content_of_its_deleted_log_into_the_file() {
    let (_folder, path, store, at) = store("chat.db").await;
    fs::remove_file(beside(&path, "-wal")).unwrap();
    assert_refuses(&store, at).await;
    store.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    append(&store, vec![write(&key("c"), RunId::new(), at, &["two"])]).await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one", "two"]);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_fail_until_a_moved_index_of_the_log_is_restored() {
    let (folder, path, store, _) = store("chat.db").await;
    let (index, away) = (beside(&path, "-shm"), beside(&path, "-away"));
    fs::rename(&index, &away).unwrap();
    assert_changed(&store.load(&key("c")).await.unwrap_err(), FileChange::LogMoved);
    assert_changed(&store.vacuum().await.unwrap_err(), FileChange::LogMoved);
    assert_changed(&store.checkpoint().await.unwrap_err(), FileChange::LogMoved);
    let copied = store.backup(folder.path().join("copy.db")).await.unwrap_err();
    let BackupError::Store(copied) = copied else { panic!("{copied:?}") };
    assert_changed(&copied, FileChange::LogMoved);
    assert!(!index.exists(), "no new file is created at the path");
    fs::rename(away, index).unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_continues_after_its_moved_log_is_restored() {
    let (_folder, path, store, at) = store("chat.db").await;
    let (log, away) = (beside(&path, "-wal"), beside(&path, "-away"));
    fs::rename(&log, &away).unwrap();
    assert_refuses(&store, at).await;
    fs::rename(&away, &log).unwrap();
    append(&store, vec![write(&key("c"), RunId::new(), at, &["two"])]).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_checkpoints_and_vacuums_of_two_stores_on_one_file_raise_no_error() {
    let (_folder, path, first, _) = store("chat.db").await;
    let second = SqliteStore::open(&path).await.unwrap();
    let large = "x".repeat(300_000);
    for round in 0..4 {
        for (store, other) in [(&first, &second), (&second, &first)] {
            let id = format!("{round}");
            let add = async |store: &SqliteStore, id: &str, text: &str| {
                let at = store.head(&key(id)).await.unwrap().revision;
                append(store, vec![write(&key(id), RunId::new(), at, &[text])]).await.unwrap();
            };
            for _ in 0..20 {
                add(store, &id, &large).await;
            }
            store.checkpoint().await.unwrap();
            add(store, "c", "after a checkpoint").await;
            add(other, "c", "after another's checkpoint").await;
            assert!(store.delete(&key(&id)).await.unwrap());
            other.vacuum().await.unwrap();
            add(store, "c", "after another's vacuum").await;
            add(other, "c", "after a vacuum").await;
            for _ in 0..3 {
                add(store, "c", "small").await;
            }
            other.checkpoint().await.unwrap();
            add(store, "c", "at last").await;
        }
    }
    assert_eq!(first.check_integrity().await.unwrap(), Vec::<String>::new());
}
