//! Tests that the files contain no deleted data.

use std::{fs, path::Path};

use crate::common::{append, key, write};
use tower_chat_core::{
    Message, MessageId, RunId, ToolCall, ToolResult,
    store::{
        HistoryStore, Revision, SequencePosition,
        author::{RecordedResult, ToolRecord, Write},
    },
};
use tower_chat_sqlite::SqliteStore;

const SECRET: &str = "the-secret-nobody-may-find";

fn holds_secret(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_text_is_gone_from_the_file_and_after_a_checkpoint_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let [file, log] = ["chat.db", "chat.db-wal"].map(|name| folder.path().join(name));
    let store = SqliteStore::open(&file).await.unwrap();
    let large = SECRET.repeat(1000);
    let secrets = [SECRET, &large, SECRET];
    let one = write(&key("c"), RunId::new(), Revision::ABSENT, &secrets);
    let kept = write(&key("d"), RunId::new(), Revision::ABSENT, &["kept"]);
    let named = write(&key(SECRET), RunId::new(), Revision::ABSENT, &["kept"]);
    append(&store, vec![one, kept, named]).await.unwrap();
    assert!(holds_secret(&log));
    store.checkpoint().await.unwrap();
    assert!(holds_secret(&file) && !holds_secret(&log));
    store.delete(&key("c")).await.unwrap();
    store.delete(&key(SECRET)).await.unwrap();
    store.checkpoint().await.unwrap();
    assert!(!holds_secret(&file) && !holds_secret(&log));
    assert_eq!(crate::common::texts(&store, &key("d")).await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_and_replaced_rows_of_the_record_are_gone_from_the_file_and_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let [file, log] = ["chat.db", "chat.db-wal"].map(|name| folder.path().join(name));
    let store = SqliteStore::open(&file).await.unwrap();
    let row = |index, result: &str, error: &str| {
        let mut row = ToolRecord::pending(SequencePosition { sequence: 1, index }, 0, "id", "tool");
        row.result = RecordedResult::Apart(ToolResult::new("id", result).into());
        row.error = Some(error.to_owned());
        row
    };
    let calls = || [Message::tool_calls([0, 1].map(|_| ToolCall::new("id", "tool", "{}"))).into()];
    let large = SECRET.repeat(1000);
    let first = |id| {
        let run = MessageId { run: RunId::new(), index: 0 };
        Write::new(key(id), run, Revision::ABSENT, calls())
            .with_tools(vec![row(0, SECRET, SECRET), row(1, &large, SECRET)])
    };
    let (replaced, deleted) = (first("c"), first("d"));
    append(&store, vec![replaced.clone(), deleted]).await.unwrap();
    store.checkpoint().await.unwrap();
    assert!(holds_secret(&file));
    let redacted = Write::new(key("c"), replaced.id(), replaced.result(), [])
        .with_tools(vec![row(0, "redacted", ""), row(1, "redacted", "")]);
    append(&store, vec![redacted]).await.unwrap();
    assert!(store.delete(&key("d")).await.unwrap());
    store.checkpoint().await.unwrap();
    assert!(!holds_secret(&file) && !holds_secret(&log));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_steady_state_the_log_is_reused_and_does_not_grow() {
    let folder = tempfile::tempdir().unwrap();
    let [file, log] = ["chat.db", "chat.db-wal"].map(|name| folder.path().join(name));
    let options = SqliteStore::options().with_durability(tower_chat_sqlite::Durability::Normal);
    let store = options.open(&file).await.unwrap();
    let text = "x".repeat(2000);
    let (run, mut revision, mut largest) = (RunId::new(), Revision::ABSENT, 0);
    for _ in 0..3000 {
        let one = write(&key("c"), run, revision, &[&text]);
        revision = append(&store, vec![one]).await.unwrap();
        let size = fs::metadata(&log).unwrap().len();
        assert!(size >= largest, "the log was truncated");
        largest = size;
    }
    // The writer runs a checkpoint after the append that takes the log to 1,000 pages.
    assert!(largest < 1100 * 4200, "{largest}");
}
