//! Tests that opening refuses files which are not stores, with typed errors and without changing
//! them.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use crate::common::{append, key, texts, write};
use rusqlite::Connection;
use tempfile::TempDir;
use tower_chat_core::{
    RunId,
    store::{HistoryStore, Revision, StoreError},
};
use tower_chat_sqlite::{OpenError, SqliteStore};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    (folder, path)
}

/// Creates a store with one message and closes it.
async fn make(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    let one = write(&key("c"), RunId::new(), Revision::ABSENT, &["one"]);
    append(&store, vec![one]).await.unwrap();
    store.close().await.unwrap();
}

fn files(folder: &TempDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Tries to open a file and returns the error. Panics if opening succeeds, if a file of the folder
/// was changed, or if the error does not contain the path.
async fn refused(folder: &TempDir, path: &Path) -> OpenError {
    let before = files(folder);
    let error = SqliteStore::open(path).await.unwrap_err();
    assert_eq!(files(folder), before, "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    error
}

#[tokio::test]
async fn opening_a_missing_or_empty_file_creates_a_store() {
    let (_folder, path) = folder();
    make(&path).await;
    let (_folder, path) = folder();
    fs::write(&path, "").unwrap();
    make(&path).await;
    let connection = Connection::open(&path).unwrap();
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get(0)).unwrap();
    assert_eq!((pragma("application_id"), pragma("user_version")), (0x7477_6368, 7));
    assert_eq!(
        connection.pragma_query_value(None, "journal_mode", |row| row.get(0)),
        Ok("wal".to_owned())
    );
}

#[tokio::test]
async fn opening_a_database_without_tables_creates_a_store() {
    let (_folder, path) = folder();
    Connection::open(&path).unwrap().execute_batch("VACUUM").unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 0);
    make(&path).await;
}

#[tokio::test]
async fn opening_read_only_or_without_create_does_not_create_a_missing_file() {
    let (folder, path) = folder();
    let error = SqliteStore::options().with_create(false).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    assert!(files(&folder).is_empty());
    fs::write(&path, "").unwrap();
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    SqliteStore::options().with_create(false).open(&path).await.unwrap();
}

#[tokio::test]
async fn a_missing_folder_is_reported() {
    let (folder, path) = folder();
    let error = refused(&folder, &folder.path().join("none/chat.db")).await;
    assert!(matches!(error, OpenError::NoFolder { .. }), "{error:?}");
    fs::write(&path, "a file").unwrap();
    let error = refused(&folder, &path.join("chat.db")).await;
    assert!(matches!(error, OpenError::NoFolder { .. }), "{error:?}");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_and_not_changed() {
    let (folder, path) = folder();
    for content in
        ["x".to_owned(), "xyz".to_owned(), "no database ".repeat(1000), "\0".repeat(4096)]
    {
        fs::write(&path, content).unwrap();
        let error = refused(&folder, &path).await;
        assert!(matches!(error, OpenError::NotADatabase { .. }), "{error:?}");
    }
    let error = refused(&folder, folder.path()).await;
    assert!(matches!(error, OpenError::NotADatabase { .. }), "{error:?}");
}

/// Returns the first sector of a rollback journal of an empty file.
fn journal_of_an_empty_file() -> Vec<u8> {
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    for number in [0, 0x5eed_u32, 0, 512, 4096] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(512, 0);
    journal
}

#[tokio::test]
async fn a_file_whose_creation_was_interrupted_by_a_power_loss_opens() {
    for page in [0, 0xa5] {
        let (_folder, path) = folder();
        fs::write(&path, vec![page; 4 * 4096]).unwrap();
        fs::write(path.with_file_name("chat.db-journal"), journal_of_an_empty_file()).unwrap();
        make(&path).await;
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(texts(&store, &key("c")).await, ["one"]);
        assert!(store.check_integrity().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_not_changed_if_a_file_named_like_its_journal_exists() {
    let (folder, path) = folder();
    fs::write(&path, "a diary ".repeat(1000)).unwrap();
    fs::write(path.with_file_name("chat.db-journal"), "a journey ".repeat(1000)).unwrap();
    let error = refused(&folder, &path).await;
    assert!(matches!(error, OpenError::NotADatabase { .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_not_changed() {
    for made in [
        "CREATE TABLE theirs (a)",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)",
        "CREATE TABLE conversations (id); CREATE TABLE messages (id); PRAGMA user_version = 1",
    ] {
        let (folder, path) = folder();
        Connection::open(&path).unwrap().execute_batch(made).unwrap();
        let error = refused(&folder, &path).await;
        assert!(matches!(error, OpenError::NotOurs { .. }), "{made}: {error:?}");
    }
}

#[tokio::test]
async fn a_database_that_another_program_is_creating_is_refused_and_not_changed() {
    let (_folder, path) = folder();
    let theirs = Connection::open(&path).unwrap();
    // The database file is still empty, because only the write-ahead log contains the table.
    theirs.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)").unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused_and_not_changed() {
    let (folder, path) = folder();
    make(&path).await;
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA user_version = 8").unwrap();
    drop(connection);
    let error = refused(&folder, &path).await;
    assert!(matches!(error, OpenError::Newer { version: 8, supported: 7, .. }), "{error:?}");
}

#[tokio::test]
async fn an_older_file_is_migrated_unless_it_is_opened_read_only() {
    let (_folder, path) = folder();
    let sql = format!("PRAGMA application_id = {}", 0x7477_6368);
    Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
    let error = SqliteStore::options().with_read_only(true).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { version: 0, supported: 7, .. }), "{error:?}");
    make(&path).await;
    SqliteStore::options().with_read_only(true).open(&path).await.unwrap();
}

#[tokio::test]
async fn opening_a_damaged_file_reports_the_damage() {
    let (_folder, path) = folder();
    make(&path).await;
    let intact = fs::read(&path).unwrap();
    for damaged in [100..4096, 4096..intact.len()] {
        let mut bytes = intact.clone();
        bytes[damaged].fill(0xa5);
        fs::write(&path, bytes).unwrap();
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
        assert!(error.source().is_some());
    }
    fs::write(&path, &intact).unwrap();
    Connection::open(&path).unwrap().execute_batch("DROP TABLE messages").unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn a_store_opened_read_only_is_read_and_never_written() {
    let (folder, path) = folder();
    make(&path).await;
    let before = files(&folder);
    let store = SqliteStore::options().with_read_only(true).open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    assert!(matches!(store.reserve().await, Err(StoreError::ReadOnly)));
    assert!(matches!(store.delete(&key("c")).await, Err(StoreError::ReadOnly)));
    assert!(matches!(store.checkpoint().await, Err(StoreError::ReadOnly)));
    let one = write(&key("d"), RunId::new(), Revision::ABSENT, &["one"]);
    let slot = tower_chat_core::store::author::Slot::unbounded();
    let error = store.append(slot, vec![one]).await.unwrap_err();
    assert!(matches!(error.source, StoreError::ReadOnly));
    store.flush().await.unwrap();
    store.close().await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
    drop(store);
    let after = files(&folder);
    assert!(after == before, "{:?}", after.keys());
}

#[tokio::test]
async fn a_setting_out_of_range_is_an_error_that_names_it() {
    let (folder, path) = folder();
    for value in [0, usize::MAX] {
        let capacity = SqliteStore::options().with_max_queued(value).open(&path).await;
        let error = capacity.unwrap_err();
        assert!(matches!(error, OpenError::InvalidOption { option: "max_queued", .. }));
        let error = SqliteStore::options().with_readers(value).open(&path).await.unwrap_err();
        assert!(matches!(error, OpenError::InvalidOption { option: "readers", .. }));
    }
    let error = SqliteStore::options().with_max_queued_bytes(0).open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::InvalidOption { option: "max_queued_bytes", value: 0 }));
    assert!(files(&folder).is_empty());
}

#[test]
fn outside_of_a_runtime_opening_and_reading_are_errors() {
    let (_folder, path) = folder();
    let error = futures_util::FutureExt::now_or_never(SqliteStore::open(&path)).unwrap();
    assert!(matches!(error, Err(OpenError::Io { .. })), "{error:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = runtime.block_on(SqliteStore::open(&path)).unwrap();
    let loaded = futures_util::FutureExt::now_or_never(store.load(&key("c"))).unwrap();
    assert!(matches!(loaded, Err(StoreError::Backend { retryable: false, .. })), "{loaded:?}");
}

#[tokio::test]
async fn file_names_with_a_meaning_for_sqlite_are_opened_as_plain_files() {
    let (folder, _) = folder();
    for name in [":memory:", "file:chat.db?mode=memory", "a b%20c.db"] {
        make(&folder.path().join(name)).await;
        assert!(folder.path().join(name).is_file());
    }
}
