//! A file that is moved, deleted or replaced while its store is open: nothing is acknowledged that
//! nobody would find.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

mod common;

use std::{fs, path::PathBuf, time::Duration};

use common::{append, key, texts, write};
use tempfile::TempDir;
use tower_chat_core::{
    RunId,
    store::{HistoryStore, Revision, StoreError},
};
use tower_chat_sqlite::{BackupError, FileMoved, SqliteStore};

/// A store with one message in conversation `c`.
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

async fn assert_refuses(store: &SqliteStore, at: Revision) {
    // The writer looks every 10 ms.
    tokio::time::sleep(Duration::from_millis(11)).await;
    let two = write(&key("c"), RunId::new(), at, &["two"]);
    for _ in 0..2 {
        assert_moved(&append(store, vec![two.clone()]).await.unwrap_err().source);
        assert_moved(&store.load(&key("c")).await.unwrap_err());
        assert_moved(&store.delete(&key("c")).await.unwrap_err());
        assert_moved(&store.checkpoint().await.unwrap_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_comes_back_is_gone_on_with() {
    let (folder, path, store, at) = store("chat.db").await;
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    let away = folder.path().join("away.db");
    fs::rename(&path, &away).unwrap();
    assert_refuses(&store, at).await;
    assert!(!path.exists(), "nothing is made in its place");
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
async fn a_file_that_was_deleted_is_not_written_to() {
    let (_folder, path, store, at) = store("chat.db").await;
    fs::remove_file(&path).unwrap();
    assert_refuses(&store, at).await;
    store.close().await.unwrap();
    assert!(!path.exists(), "nothing is made in its place");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_took_its_place_is_left_alone() {
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
async fn a_store_that_is_only_read_says_it_too() {
    let (_folder, path, writer, _) = store("chat.db").await;
    let reader = SqliteStore::options().read_only(true).open(&path).await.unwrap();
    assert_eq!(texts(&reader, &key("c")).await, ["one"]);
    fs::rename(&path, path.with_extension("away")).unwrap();
    assert_moved(&reader.load(&key("c")).await.unwrap_err());
    fs::rename(path.with_extension("away"), &path).unwrap();
    assert_eq!(texts(&reader, &key("c")).await, ["one"]);
    drop(writer);
}
