//! Tests that a file contains no deleted data after a vacuum, and that the vacuum changes no other
//! data.

use std::{fs, path::PathBuf, time::SystemTime};

use crate::common::{append, key, texts};
use rusqlite::{Connection, types::Value};
use tower_chat_core::{
    Message, MessageId, RunId, ToolCall, ToolResult,
    store::{
        HistoryStore, Journal, Lease, LeaseEnd, Revision, SequencePosition, StoreError,
        author::{Close, RecordedResult, Staged, ToolRecord, Write},
    },
};
use tower_chat_sqlite::SqliteStore;

const GONE: &str = "gone";

/// A store in its own folder.
struct Fixture {
    folder: tempfile::TempDir,
    store: SqliteStore,
}

/// A conversation that the test writes, with its current revision.
struct Writing {
    name: &'static str,
    /// Whether the texts are stored as results of tool calls in the record, instead of as messages.
    in_record: bool,
    run: RunId,
    at: Revision,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("chat.db")
    }

    /// Returns how often a word occurs in the files of the folder.
    fn count(&self, word: &str) -> usize {
        let files = fs::read_dir(&self.folder).unwrap();
        let read = |file: std::io::Result<fs::DirEntry>| fs::read(file.unwrap().path()).unwrap();
        let count = |bytes: Vec<u8>| {
            bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
        };
        files.map(|file| count(read(file))).sum()
    }

    /// Returns all rows of all tables, as their values.
    fn rows(&self) -> Vec<Vec<Value>> {
        let connection = Connection::open(self.path()).unwrap();
        let rows_of = |table: &str| {
            let mut statement =
                connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect());
            rows.unwrap().collect::<Result<Vec<Vec<Value>>, _>>().unwrap()
        };
        let tables = ["conversations", "messages", "tool_invocations", "open_runs"];
        tables.iter().flat_map(|table| rows_of(table)).collect()
    }

    async fn write(&self, writing: &mut Writing, word: &str, length: usize) {
        let write = writing.next(word, length);
        writing.at = append(&self.store, vec![write]).await.unwrap();
    }

    /// Writes a conversation so that SQLite moves its rows to other pages, and then deletes the
    /// conversation.
    async fn move_and_delete(&self, in_record: bool) {
        let [mut deleted, mut beside, mut last] =
            ["deleted", "beside", "last"].map(|name| Writing::new(name, in_record));
        // One page contains the rows of two conversations. The next row of the first conversation
        // does not fit between the existing rows. SQLite moves the later rows to another page, and
        // may leave copies of rows in unused space.
        let (times, length, larger, filler) =
            if in_record { (4, 500, 800, 300) } else { (3, 660, 800, 3_500) };
        for number in 0..times {
            self.write(&mut deleted, GONE, length).await;
            if number + 1 < times {
                self.write(&mut beside, "stays", length).await;
            }
        }
        self.write(&mut deleted, GONE, larger).await;
        for _ in 0..8 {
            self.write(&mut last, "stays", filler).await;
        }
        assert!(self.store.delete(&key("deleted")).await.unwrap());
    }
}

impl Writing {
    fn new(name: &'static str, in_record: bool) -> Self {
        Self { name, in_record, run: RunId::new(), at: Revision::ABSENT }
    }

    /// Returns the next write of the conversation. The text of the write consists of repetitions of
    /// `word`, and has `length` bytes.
    fn next(&self, word: &str, length: usize) -> Write {
        let line = |number: usize| format!("{word:<8}#{number:06} ");
        let text: String = (0..length / 16).map(line).collect();
        let index = u32::try_from(self.at.sequence).unwrap();
        let id = MessageId { run: self.run, index };
        if !self.in_record {
            return Write::new(key(self.name), id, self.at, [Message::user(text).into()]);
        }
        let call = SequencePosition { sequence: self.at.sequence + 1, index: 0 };
        let mut row = ToolRecord::pending(call, 0, "id", "tool");
        row.result = RecordedResult::Apart(ToolResult::new("id", text).into());
        let calls = Message::tool_calls([ToolCall::new("id", "tool", "{}")]);
        Write::new(key(self.name), id, self.at, [calls.into()]).with_tools(vec![row])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vacuum_removes_copies_of_deleted_text_from_the_file() {
    for in_record in [false, true] {
        let fixture = Fixture::new().await;
        fixture.move_and_delete(in_record).await;
        fixture.store.checkpoint().await.unwrap();
        assert!(fixture.count(GONE) > 0, "SQLite has left no copy, so that the test has no effect");
        let (rows, kept) = (fixture.rows(), fixture.count("stays"));
        fixture.store.vacuum().await.unwrap();
        assert_eq!(fixture.count(GONE), 0, "in the record: {in_record}");
        assert!(fixture.count("stays") > kept / 2);
        assert_eq!(fixture.rows(), rows);
        assert_eq!(fixture.store.check_integrity().await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_and_open_runs_continue_after_a_vacuum() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut whole = Writing::new("whole", false);
    let mut open = Writing::new("open", true);
    fixture.write(&mut whole, "one", 100).await;
    fixture.write(&mut open, "one", 100).await;
    let lease = Lease {
        attempt: 1,
        holder: 7,
        renewed_at: SystemTime::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let staged = |close| Staged { lease, close, service_id: None, partial_text: None };
    let two = open.next("two", 100).staged(staged(None));
    open.at = append(store, vec![two]).await.unwrap();
    // After the deletion, the number of this conversation is unused.
    let deleted = Writing::new("deleted", false).next(GONE, 100);
    append(store, vec![deleted]).await.unwrap();
    fixture.write(&mut Writing::new("later", false), "later", 100).await;
    store.delete(&key("deleted")).await.unwrap();
    let rows = fixture.rows();

    store.vacuum().await.unwrap();
    assert_eq!(fixture.rows(), rows);
    let content = store.open_run(&key("open")).await.unwrap().unwrap();
    assert_eq!(content.open.run, open.run);
    fixture.write(&mut whole, "two", 100).await;
    let commit = Write::new(key("open"), MessageId { run: open.run, index: 2 }, open.at, []);
    append(store, vec![commit.staged(staged(Some(Close::Commit)))]).await.unwrap();
    assert_eq!(texts(store, &key("whole")).await.len(), 2);
    assert_eq!(texts(store, &key("open")).await.len(), 2);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_succeed_during_a_vacuum_and_readers_keep_their_snapshot() {
    let fixture = Fixture::new().await;
    let mut writing = Writing::new("c", false);
    fixture.write(&mut writing, "one", 100).await;
    // The reader has a snapshot until its transaction ends.
    let reader = Connection::open(fixture.path()).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let count = "SELECT count(*) FROM messages";
    let seen = || reader.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(seen(), 1);
    let store = fixture.store.clone();
    let vacuuming = tokio::spawn(async move { store.vacuum().await });
    for _ in 0..50 {
        fixture.write(&mut writing, "more", 100).await;
    }
    assert_eq!(seen(), 1);
    reader.execute_batch("COMMIT").unwrap();
    // The vacuum may fail only because the reader prevented the truncation of the log.
    if let Err(error) = vacuuming.await.unwrap() {
        assert!(error.is_retryable(), "{error:?}");
    }
    fixture.store.vacuum().await.unwrap();
    assert_eq!(texts(&fixture.store, &key("c")).await.len(), 51);
}

#[tokio::test]
async fn a_read_only_store_cannot_be_vacuumed() {
    let fixture = Fixture::new().await;
    fixture.write(&mut Writing::new("c", false), "one", 100).await;
    let read_only = SqliteStore::options().with_read_only(true).open(fixture.path()).await.unwrap();
    assert!(matches!(read_only.vacuum().await, Err(StoreError::ReadOnly)));
    fixture.store.close().await.unwrap();
    assert!(matches!(fixture.store.vacuum().await, Err(StoreError::Closed)));
}
