//! Tests of files with a schema that no release creates.

use std::{fs, path::Path};

use rusqlite::Connection;
use tower_chat_core::{ConversationKey, store::HistoryStore};
use tower_chat_sqlite::{Backup, OpenError, SqliteStore};

use crate::common::*;

/// A query with endless recursion.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n)";

async fn made() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    SqliteStore::open(&path).await.unwrap().close().await.unwrap();
    (folder, path)
}

/// Opens the file as a store, opens it read-only, reads its settings and copies it, and returns the
/// four errors. Panics if one of these operations succeeds or changes the file.
async fn refused(path: &Path) -> Vec<OpenError> {
    let before = fs::read(path).unwrap();
    let mut errors = Vec::new();
    for read_only in [false, true] {
        let options = SqliteStore::options().with_create(false).with_read_only(read_only);
        errors.push(options.open(path).await.unwrap_err());
    }
    errors.push(SqliteStore::file_settings(path).await.unwrap_err());
    let copy = path.with_file_name("copy.db");
    match Backup::of_file(path).write(&copy).await.unwrap_err() {
        tower_chat_sqlite::BackupError::Open(error) => errors.push(error),
        other => panic!("{other:?}"),
    }
    assert!(!copy.exists());
    assert_eq!(fs::read(path).unwrap(), before);
    errors
}

#[tokio::test]
async fn opening_refuses_a_schema_with_foreign_objects_before_any_row_is_read() {
    let of_table = |name: &str, columns: &str| {
        format!(
            "PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(sql, 'body TEXT NOT NULL', '{columns}')
             WHERE name = '{name}';
             PRAGMA writable_schema = OFF;"
        )
    };
    let view = format!("CREATE VIEW open_runs AS {ENDLESS} SELECT * FROM n;");
    for (made_by, named) in [
        (format!("DROP TABLE messages; CREATE VIEW messages AS {ENDLESS} SELECT i AS place FROM n;"), "messages"),
        (format!("CREATE VIEW theirs AS {ENDLESS} SELECT i FROM n;"), "theirs"),
        (format!("DROP TABLE open_runs; {view}"), "open_runs"),
        (
            format!("CREATE TRIGGER theirs AFTER INSERT ON messages BEGIN DELETE FROM messages WHERE place IN ({ENDLESS} SELECT i FROM n); END;"),
            "theirs",
        ),
        ("CREATE TRIGGER theirs BEFORE DELETE ON conversations BEGIN SELECT 1; END;".to_owned(), "theirs"),
        ("CREATE INDEX theirs ON messages (hex(body));".to_owned(), "theirs"),
        ("CREATE TABLE theirs (a);".to_owned(), "theirs"),
        ("ALTER TABLE messages ADD COLUMN theirs TEXT AS (hex(body));".to_owned(), "messages"),
        ("ALTER TABLE conversations ADD COLUMN theirs TEXT;".to_owned(), "conversations"),
        (of_table("messages", "body TEXT NOT NULL DEFAULT (randomblob(9))"), "messages"),
        ("DROP TRIGGER body_changed; CREATE TRIGGER body_changed AFTER UPDATE ON messages BEGIN SELECT 1; END;".to_owned(), "body_changed"),
    ] {
        let (_folder, path) = made().await;
        Connection::open(&path).unwrap().execute_batch(&made_by).unwrap();
        for error in refused(&path).await {
            let OpenError::Altered { object, .. } = &error else { panic!("{made_by}: {error:?}") };
            assert!(object.contains(named), "{made_by}: {error}");
            assert!(!error.is_retryable());
        }
    }
}

#[tokio::test]
async fn a_missing_table_index_or_trigger_is_reported_as_damage() {
    for dropped in ["TABLE run_usage", "INDEX conversations_by_activity", "TRIGGER body_changed"] {
        let (_folder, path) = made().await;
        Connection::open(&path).unwrap().execute_batch(&format!("DROP {dropped}")).unwrap();
        for error in refused(&path).await {
            assert!(matches!(error, OpenError::Corrupt { .. }), "{dropped}: {error:?}");
        }
    }
}

#[tokio::test]
async fn an_older_file_with_a_foreign_trigger_is_not_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let oldest = fs::read_dir(fixture).unwrap().map(|it| it.unwrap().path()).min().unwrap();
    fs::copy(&oldest, &path).unwrap();
    let trigger =
        "CREATE TRIGGER theirs AFTER UPDATE ON conversations BEGIN DELETE FROM messages; END";
    Connection::open(&path).unwrap().execute_batch(trigger).unwrap();
    for error in refused(&path).await {
        assert!(matches!(error, OpenError::Altered { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_file_with_statistics_tables_of_sqlite_opens() {
    let (_folder, path) = made().await;
    Connection::open(&path).unwrap().execute_batch("ANALYZE; VACUUM;").unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let key = ConversationKey::new("alice", "support");
    assert!(texts(&store, &key).await.is_empty());
}
