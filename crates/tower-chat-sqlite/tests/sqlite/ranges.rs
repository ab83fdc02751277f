//! Tests of loading a part of a conversation from a file.

use std::sync::Arc;

use rusqlite::Connection;
use tower_chat_core::store::{HistoryStore as _, Revision, author::LoadFrom};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::store_contract::{self, Store};

use crate::common::{append, key, texts, write};

#[tokio::test]
async fn only_the_selected_messages_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let store: Store = Arc::new(SqliteStore::open(folder.path().join("chat.db")).await.unwrap());
    assert!(store_contract::loads_ranges(&store).await);
}

#[tokio::test]
async fn a_load_with_a_range_that_was_damaged_in_the_file_returns_all_messages() {
    for damaged in ["'{}'", "'none'", "replace(load_from, '2', '200')", "NULL"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let run = tower_chat_core::RunId::new();
        let from = Arc::new(LoadFrom { leading: 0, after: 2, applies_to: "any".to_owned() });
        let first = write(&key("c"), run, Revision::ABSENT, &["one", "two", "three"]);
        append(&store, vec![first.with_load_from(Some(from.clone()))]).await.unwrap();
        store.close().await.unwrap();
        let file = Connection::open(&path).unwrap();
        file.execute(&format!("UPDATE conversations SET load_from = {damaged}"), []).unwrap();
        drop(file);
        let store = SqliteStore::open(&path).await.unwrap();
        let from = store.head(&key("c")).await.unwrap().load_from.unwrap_or(from);
        let loaded = store.load_from(&key("c"), &from).await.unwrap();
        assert!(loaded.is_whole(), "{damaged}");
        assert_eq!(texts(&store, &key("c")).await, ["one", "two", "three"]);
    }
}
