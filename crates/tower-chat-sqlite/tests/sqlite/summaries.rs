//! Tests of summaries in a file.

use std::{path::Path, sync::Arc};

use crate::common::{append, key, texts, write};
use rusqlite::Connection;
use tower_chat_core::{
    RunId,
    store::{AddedSummary, HistoryStore, HistorySummary, Revision, StoreError, Summaries},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::store_contract::{self, Store};

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_waits_for_no_slot() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStore::options().with_max_queued(1);
    let store = options.open(folder.path().join("chat.db")).await.unwrap();
    store_contract::a_summary_waits_for_no_slot(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_summarize_one_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let open = async || {
        let store: Store = Arc::new(open(&path).await);
        store
    };
    store_contract::two_processes_summarize_one_conversation(open).await;
}

#[tokio::test]
async fn loading_a_summary_that_was_changed_in_the_file_is_an_error() {
    for changed in [
        "body = replace(body, '100', '900')",
        "body = '{}'",
        "id = 7",
        "place = place - 1",
        "checksum = checksum + 1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let store = open(&path).await;
        let run = RunId::new();
        let first = write(&key("c"), run, Revision::ABSENT, &["pay 100 to Ann", "paid 100"]);
        append(&store, vec![first]).await.unwrap();
        let last = store.load(&key("c")).await.unwrap().message(2).unwrap().id.unwrap();
        let summary = HistorySummary::new(2, last, "100 were paid to Ann.");
        let added = store.add_summary(&key("c"), &summary, 0).await.unwrap();
        assert_eq!(added, AddedSummary::Stored);
        store.close().await.unwrap();
        let file = Connection::open(&path).unwrap();
        file.execute(&format!("UPDATE history_summaries SET {changed}"), []).unwrap();
        drop(file);
        let store = open(&path).await;
        let error = store.history_summaries(&key("c")).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{changed}: {error:?}");
        assert_eq!(texts(&store, &key("c")).await, ["pay 100 to Ann", "paid 100"]);
        let in_force = store.head(&key("c")).await.unwrap().summary.unwrap();
        assert!(store.remove_summary(&key("c"), in_force.id).await.unwrap(), "{changed}");
        assert_eq!(store.history_summaries(&key("c")).await.unwrap(), []);
    }
}
