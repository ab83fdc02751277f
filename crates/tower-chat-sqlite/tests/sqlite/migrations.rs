//! Tests that opening an older file migrates it completely or does not change it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::common::{append, key, texts, write};
use rusqlite::{Connection, types::Value};
use tempfile::TempDir;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{HistoryStore, Revision},
};
use tower_chat_sqlite::SqliteStore;

const PATH: &str = "TOWER_CHAT_SQLITE_MIGRATION_PATH";
const NAME: &str = "TOWER_CHAT_SQLITE_MIGRATION_NAME";
const VERSIONS: [i64; 6] = [1, 2, 3, 4, 5, 6];
const NEWEST: i64 = 7;

/// The names of the columns of a row, with their values.
type Row = Vec<(String, Value)>;

/// Returns a copy of the fixture of a version.
fn copy(version: i64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let fixture = format!("{}/tests/fixtures/v{version}.db", env!("CARGO_MANIFEST_DIR"));
    fs::copy(fixture, &path).unwrap();
    (folder, path)
}

/// Returns the tables, indexes and triggers of a file.
fn schema(path: &Path) -> Vec<(String, String, Option<String>)> {
    let connection = Connection::open(path).unwrap();
    let sql = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Returns every row of every table.
fn rows(path: &Path) -> Vec<(String, Vec<Row>)> {
    let tables = schema(path).into_iter().filter(|(kind, ..)| kind == "table");
    let connection = Connection::open(path).unwrap();
    let rows_of = |table: &str| {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns: Vec<_> = statement.column_names().map(str::to_owned).collect();
        let value = |row: &rusqlite::Row<'_>, name: &String| Ok((name.clone(), row.get(&**name)?));
        let rows = statement
            .query_map([], |row| columns.iter().map(|name| value(row, name)).collect())
            .unwrap();
        rows.map(Result::unwrap).collect()
    };
    tables.map(|(_, table, _)| (table.clone(), rows_of(&table))).collect()
}

/// Returns whether a row contains all columns and values of another row. The row may have
/// additional columns.
fn is_of(row: &Row, before: &Row) -> bool {
    before.iter().all(|value| row.contains(value))
}

fn version(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

async fn migrate(path: &Path) {
    SqliteStore::open(path).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn a_file_of_every_version_is_migrated_with_all_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("chat.db");
    migrate(&new).await;
    for from in VERSIONS {
        let (_folder, path) = copy(from);
        assert_eq!(version(&path), from);
        let before = rows(&path);
        assert!(before.iter().all(|(_, rows)| !rows.is_empty()), "{from}: every table has a row");
        migrate(&path).await;
        assert_eq!(version(&path), NEWEST);
        assert_eq!(schema(&path), schema(&new), "{from}");
        for (table, rows_before) in before {
            let after = rows(&path).into_iter().find(|(name, _)| *name == table).unwrap().1;
            assert_eq!(after.len(), rows_before.len(), "{from}: {table}");
            for (after, before) in after.iter().zip(&rows_before) {
                assert!(is_of(after, before), "{from}: {table}: {after:?} was {before:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_migration_that_fails_in_the_middle_leaves_the_old_version() {
    // The first migration of a file of version 1 succeeds, and the second one fails.
    let (_folder, path) = copy(1);
    let in_the_way = "CREATE TABLE open_runs (somebody_elses)";
    Connection::open(&path).unwrap().execute_batch(in_the_way).unwrap();
    let (schema_before, rows_before) = (schema(&path), rows(&path));
    SqliteStore::open(&path).await.unwrap_err();
    assert_eq!(version(&path), 1);
    assert_eq!((schema(&path), rows(&path)), (schema_before, rows_before));
    Connection::open(&path).unwrap().execute_batch("DROP TABLE open_runs").unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let support = ConversationKey::new("alice", "support");
    assert_eq!(texts(&store, &support).await, ["Where is my order?", ""]);
}

#[tokio::test]
async fn processes_that_open_an_older_file_at_the_same_moment_all_can_use_it() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    for from in VERSIONS {
        let (_folder, path) = copy(from);
        let before = rows(&path);
        let children = NAMES.map(|name| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "migrations::child_opens_and_appends", "--ignored"])
                .env(PATH, &path)
                .env(NAME, name)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        });
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(version(&path), NEWEST);
        let store = SqliteStore::open(&path).await.unwrap();
        for name in NAMES {
            assert_eq!(texts(&store, &key(name)).await, [name]);
        }
        assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
        store.close().await.unwrap();
        let after = rows(&path);
        for (table, rows) in before {
            let after = &after.iter().find(|(name, _)| *name == table).unwrap().1;
            let is_there = |row: &Row| after.iter().any(|after| is_of(after, row));
            assert!(rows.iter().all(is_there), "{from}: {table}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_opens_and_appends() {
    let (Some(path), Ok(name)) = (std::env::var_os(PATH), std::env::var(NAME)) else { return };
    let store = SqliteStore::open(path).await.unwrap();
    let one = write(&key(&name), RunId::new(), Revision::ABSENT, &[&name]);
    append(&store, vec![one]).await.unwrap();
    assert_eq!(texts(&store, &ConversationKey::new("alice", "support")).await.len(), 2);
    store.close().await.unwrap();
}
