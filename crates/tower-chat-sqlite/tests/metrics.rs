//! A test of the metrics of a store. This test has its own process, because the writer thread
//! records metrics with the recorder of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rusqlite::Connection;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, format,
    store::{
        HistoryStore, Revision, StoreError,
        author::{Slot, Write},
    },
    telemetry::{describe, metric},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::RecordedMetrics;

const SYSTEM: &str = "{db.system.name=sqlite}";

/// Returns one write for each text, and the number of bytes of all messages in stored form. The
/// writes belong to one conversation and follow each other.
fn writes(id: &str, texts: &[&str]) -> (Vec<Write>, f64) {
    let mut revision = Revision::ABSENT;
    let mut bytes = 0;
    let writes = texts.iter().map(|text| {
        let message = Arc::new(Message::user(*text));
        bytes += format::encode(&message).len();
        let id = (ConversationKey::new("metrics", id), MessageId { run: RunId::new(), index: 0 });
        let write = Write::new(id.0, id.1, revision, [message]);
        revision = write.result();
        write
    });
    let writes = writes.collect();
    (writes, f64::from(u32::try_from(bytes).unwrap()))
}

#[tokio::test]
async fn a_store_records_its_queue_its_commits_its_reads_and_its_conflicts() {
    let metrics = RecordedMetrics::new();
    metrics.record_process().unwrap();
    describe();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let store = SqliteStore::open(&path).await.unwrap();

    // A second connection locks the file, so that submissions wait in the queue.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (three, bytes) = writes("three", &["red", "yellow ochre", "prussian blue"]);
    let ticket = store.append(Slot::unbounded(), three.clone());
    assert_eq!(
        metrics.lines(),
        [
            format!("tower_chat.store.queue.length{SYSTEM} = 1"),
            format!("tower_chat.store.queue.size{SYSTEM} = {bytes}"),
            format!("tower_chat.store.queue.writes{SYSTEM} = 3"),
        ]
    );
    other.execute_batch("COMMIT").unwrap();
    ticket.await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(metrics.values(metric::COMMIT_WRITES.name()), [3.0]);
    assert_eq!(metrics.values(metric::COMMIT_BYTES.name()), [bytes]);

    // Causes a conflict, because the conversation exists.
    let conflicting = Write::new(
        three[0].key().clone(),
        MessageId { run: RunId::new(), index: 0 },
        Revision::ABSENT,
        [Arc::new(Message::user("too late"))],
    );
    let refused = store.append(Slot::unbounded(), vec![conflicting]).await.unwrap_err();
    assert!(matches!(refused.source, StoreError::Conflict(_)), "{refused:?}");
    assert_eq!(store.load(three[0].key()).await.unwrap().messages.len(), 3);
    store.delete(three[0].key()).await.unwrap();
    assert_eq!(
        metrics.lines(),
        [
            format!("tower_chat.store.commit.duration{SYSTEM} 1 values"),
            format!("tower_chat.store.commit.size{SYSTEM} 1 values"),
            format!("tower_chat.store.commit.writes{SYSTEM} 1 values"),
            format!("tower_chat.store.conflicts{SYSTEM} 1"),
            // The three submissions: the three writes, the refused write, and the deletion.
            format!("tower_chat.store.queue.duration{SYSTEM} 3 values"),
            format!("tower_chat.store.queue.length{SYSTEM} = 0"),
            format!("tower_chat.store.queue.size{SYSTEM} = 0"),
            format!("tower_chat.store.queue.writes{SYSTEM} = 0"),
            format!("tower_chat.store.read.size{SYSTEM} 1 values"),
        ]
    );
    assert_eq!(metrics.values(metric::READ_BYTES.name()), [bytes]);

    let (unit, description) = metrics.described(metric::COMMIT_BYTES.name()).unwrap();
    assert_eq!(unit.map(|unit| unit.as_str()), Some("bytes"));
    assert!(!description.is_empty());
}
