//! Tests that a message which was changed in the file, or moved to another conversation, is not
//! returned.

use std::path::{Path, PathBuf};

use crate::common::{append, key, texts, write};
use rusqlite::Connection;
use tempfile::TempDir;
use tower_chat_core::{
    Message, RunId,
    store::{HistoryStore, Maintenance, Revision, Rewrite, StoreError},
};
use tower_chat_sqlite::SqliteStore;

/// Creates a file with two conversations and closes it.
async fn made() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let first = write(&key("c"), RunId::new(), Revision::ABSENT, &["pay 100 to Ann", "paid 100"]);
    let other = write(&key("d"), RunId::new(), Revision::ABSENT, &["unhurt"]);
    append(&store, vec![first, other]).await.unwrap();
    store.close().await.unwrap();
    (folder, path)
}

/// Changes rows without executing the trigger that deletes checksums, as a bit flip on the disk
/// does.
fn change(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    let trigger: String = connection
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'body_changed'", [], |row| {
            row.get(0)
        })
        .unwrap();
    connection.execute_batch("DROP TRIGGER body_changed").unwrap();
    connection.execute_batch(sql).unwrap();
    connection.execute_batch(&trigger).unwrap();
}

#[tokio::test]
async fn a_message_that_was_changed_in_the_file_is_reported_by_conversation_and_number() {
    let second = "place & 0xffffffff = 2";
    for changed in [
        "body = replace(body, '100', '900')",
        "run = zeroblob(16)",
        "run_index = 7",
        "checksum = checksum + 1",
        "checksum = 'none'",
    ] {
        let (_folder, path) = made().await;
        // A `STRICT` table refuses this change, because the column has the type `INTEGER`.
        if changed == "checksum = 'none'" {
            let refused = Connection::open(&path).unwrap();
            refused.execute(&format!("UPDATE messages SET {changed}"), []).unwrap_err();
            continue;
        }
        change(&path, &format!("UPDATE messages SET {changed} WHERE {second}"));
        let store = SqliteStore::open(&path).await.unwrap();
        let error = store.load(&key("c")).await.unwrap_err();
        let StoreError::Undecodable { key: of, sequence, source } = error else {
            panic!("{changed}: {error:?}")
        };
        assert_eq!((of, sequence), (key("c"), 2), "{changed}");
        assert!(format!("{source:?}").contains("checksum"), "{changed}: {source:?}");
        let rows = store.rows(&key("c")).await.unwrap().unwrap();
        let readable: Vec<_> = rows.messages.iter().map(|(at, it)| (*at, it.is_ok())).collect();
        assert_eq!(readable, [(1, true), (2, false)], "{changed}");
        assert_eq!(texts(&store, &key("d")).await, ["unhurt"]);
    }
}

#[tokio::test]
async fn a_message_that_was_moved_to_another_position_in_the_file_is_not_decoded() {
    let (_folder, path) = made().await;
    change(
        &path,
        "UPDATE messages SET place = -place;
         UPDATE messages SET place = -place + 1 WHERE -place & 0xffffffff = 1;
         UPDATE messages SET place = -place - 1 WHERE place < 0;",
    );
    let store = SqliteStore::open(&path).await.unwrap();
    let error = store.load(&key("c")).await.unwrap_err();
    assert!(matches!(error, StoreError::Undecodable { sequence: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_message_that_an_older_release_has_changed_is_loaded_without_a_checksum() {
    let (_folder, path) = made().await;
    let connection = Connection::open(&path).unwrap();
    let changed = "UPDATE messages SET body = replace(body, '100', '900')";
    connection.execute(changed, []).unwrap();
    drop(connection);
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["pay 900 to Ann", "paid 900"]);
}

#[tokio::test]
async fn forked_and_rewritten_messages_have_checksums() {
    let (_folder, path) = made().await;
    let store = SqliteStore::open(&path).await.unwrap();
    store.fork_at(&key("c"), None, &key("copy")).await.unwrap();
    let at = store.head(&key("c")).await.unwrap().revision;
    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.messages = vec![(2, Message::user("paid 101"))];
    let at = store.rewrite(rewrite).await.unwrap();
    append(&store, vec![write(&key("c"), RunId::new(), at, &["pay 7"])]).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["pay 100 to Ann", "paid 101", "pay 7"]);
    assert_eq!(texts(&store, &key("copy")).await, ["pay 100 to Ann", "paid 100"]);
    store.close().await.unwrap();
    let connection = Connection::open(&path).unwrap();
    let counts = "SELECT count(*), count(checksum) FROM messages";
    let counts = connection.query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?)));
    assert_eq!(counts, Ok((6, 6)));
}

#[tokio::test]
async fn a_load_through_a_damaged_index_returns_no_messages_of_another_conversation() {
    let (_folder, path) = made().await;
    let store = SqliteStore::open(&path).await.unwrap();
    let theirs = write(&key("thread 0"), RunId::new(), Revision::ABSENT, &["their secret"]);
    append(&store, vec![theirs]).await.unwrap();
    store.close().await.unwrap();
    let intact = std::fs::read(&path).unwrap();
    let name = b"thread 0";
    let positions: Vec<usize> =
        (0..intact.len()).filter(|at| intact[*at..].starts_with(name)).collect();
    let mut damaged = 0;
    for position in positions {
        let mut bytes = intact.clone();
        bytes[position + name.len() - 1] = b'1';
        std::fs::write(&path, bytes).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        let asked = key("thread 1");
        match store.load(&asked).await {
            Ok(history) => assert_eq!(history.messages.len(), 0),
            Err(error) => {
                assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
                damaged += 1;
                let deleted = store.delete(&asked).await.unwrap_err();
                assert!(matches!(deleted, StoreError::Corrupt { .. }), "{deleted:?}");
            }
        }
        store.close().await.unwrap();
    }
    assert_eq!(damaged, 1, "the key is in one index");
}
