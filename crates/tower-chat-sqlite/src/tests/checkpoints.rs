//! Tests that the write-ahead log does not grow without limit while readers begin and end, and that
//! it is truncated after a long read.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};
use tower_chat_core::store::{HistoryStore, Revision};

use super::{Fixture, first, key, run, unbounded, write};
use crate::{
    Durability, SqliteStore, byte_budget::ByteBudget, checkpoints::Checkpoints, file::LOCK_TIMEOUT,
    submission::Submission, writer::Writer,
};

const PAGE: u64 = 4096 + 24;

impl Fixture {
    /// Creates a store with `Durability::Normal`, whose commits are fast.
    async fn fast() -> Self {
        Self::with(SqliteStore::options().with_durability(Durability::Normal)).await
    }

    fn log_size(&self) -> u64 {
        fs::metadata(self.folder.path().join("chat.db-wal")).unwrap().len()
    }

    /// Appends `times` messages, and returns the largest size of the log in bytes.
    async fn append_often(&self, at: &mut Revision, times: usize) -> u64 {
        let text = "x".repeat(2000);
        let mut largest = 0;
        for _ in 0..times {
            let one = write("c", run(1), *at, &[&text]);
            *at = self.store.append(self.store.reserve().await.unwrap(), vec![one]).await.unwrap();
            largest = largest.max(self.log_size());
        }
        largest
    }
}

/// Begins a read transaction. Until the transaction ends, SQLite must not overwrite the pages of
/// its snapshot.
fn begin_to_read(connection: &Connection) {
    connection.execute_batch("BEGIN").unwrap();
    connection.query_row("SELECT count(*) FROM conversations", [], |_| Ok(())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_the_log_stays_bounded_during_thousands_of_appends() {
    for (durability, times) in [(Durability::Normal, 4000), (Durability::Full, 1200)] {
        let fixture = Fixture::with(SqliteStore::options().with_durability(durability)).await;
        let mut at = Revision::ABSENT;
        let largest = fixture.append_often(&mut at, times).await;
        assert!(largest < 1100 * PAGE, "{durability:?}: {largest}");
        assert!(fixture.is_intact());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_grows_while_a_reader_has_a_snapshot_and_shrinks_afterwards() {
    let fixture = Fixture::fast().await;
    let mut at = fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let reader = fixture.other();
    begin_to_read(&reader);
    let megabyte = "x".repeat(1 << 20);
    let large = write("large", run(2), Revision::ABSENT, &[megabyte.as_str(); 30]);
    fixture.submit(vec![large]).await.await.unwrap();
    let grown = fixture.append_often(&mut at, 2000).await;
    assert!(grown > 30 << 20, "pages that a reader needs are not overwritten: {grown}");
    fixture.store.checkpoints().settle();
    assert_eq!(
        reader.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0)).unwrap(),
        1,
        "the reader still has its snapshot"
    );
    reader.execute_batch("COMMIT").unwrap();
    // After 400 new pages the writer wakes the checkpoint thread.
    fixture.append_often(&mut at, 450).await;
    fixture.store.checkpoints().settle();
    fixture.append_often(&mut at, 450).await;
    assert!(fixture.log_size() <= 16 << 20, "{}", fixture.log_size());
    let largest = fixture.append_often(&mut at, 2000).await;
    assert!(largest <= 16 << 20, "{largest}");
    assert_eq!(fixture.texts(&key("c")).await.len(), 1 + 2000 + 450 + 450 + 2000);
    assert!(fixture.is_intact());
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_do_not_wait_for_a_large_checkpoint() {
    let fixture = Fixture::fast().await;
    let mut at = fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let reader = fixture.other();
    begin_to_read(&reader);
    let megabyte = "x".repeat(1 << 20);
    let large = write("large", run(2), Revision::ABSENT, &[megabyte.as_str(); 10]);
    fixture.submit(vec![large]).await.await.unwrap();
    // The checkpoint thread has tried to copy the log, and the reader has prevented the copy.
    fixture.store.checkpoints().settle();
    reader.execute_batch("COMMIT").unwrap();
    let held = fixture.store.checkpoints().hold();
    // `held` blocks every checkpoint. If the writer itself ran a checkpoint, this checkpoint would
    // never finish.
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let appending = scope.spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let grown = runtime.block_on(fixture.append_often(&mut at, 500));
            done.send(()).unwrap();
            grown
        });
        let waited_in_vain = is_done.recv_timeout(Duration::from_secs(120)).is_err();
        drop(held);
        assert!(appending.join().unwrap() > 10 << 20);
        assert!(!waited_in_vain);
    });
    fixture.store.checkpoints().settle();
    fixture.append_often(&mut at, 900).await;
    assert!(fixture.is_intact());
}

/// The checkpoint thread cannot open a connection in this test, as in a process that has reached
/// its limit of open files.
#[tokio::test]
async fn the_writer_copies_the_log_if_the_checkpoint_thread_cannot() {
    let (fixture, lost) = (Fixture::fast().await, Fixture::fast().await);
    let checkpoints = Arc::new(Checkpoints::new(lost.store.file().clone()));
    drop(lost);
    let file = fixture.store.file().clone();
    let connection = file.writer().unwrap();
    let mut writer = Writer::new(file, connection, checkpoints.clone()).unwrap();
    let served = checkpoints.clone();
    let thread = thread::spawn(move || served.serve());
    // The writer copies such a large number of pages only if the checkpoint thread has failed.
    let text = "x".repeat(10 << 20);
    let mut at = Revision::ABSENT;
    for _ in 0..6 {
        let next = write("c", run(1), at, &[&text]);
        at = next.result();
        let budget = Arc::new(ByteBudget::new(usize::MAX));
        let (submission, outcome) = Submission::append(unbounded(), vec![next], &budget).queued();
        let mut group = [submission];
        writer.write(&mut group, LOCK_TIMEOUT).unwrap();
        group.into_iter().for_each(Submission::resolve);
        outcome.await.unwrap();
        checkpoints.settle();
    }
    checkpoints.end();
    thread.join().unwrap();
    let largest = fixture.log_size();
    assert!(largest < 25 << 20, "{largest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_stays_bounded_although_readers_with_overlapping_snapshots_begin_and_end() {
    let fixture = Fixture::fast().await;
    let mut at = fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    // One of the two readers has an open transaction at every moment: each ends its transaction
    // only after the other one has begun.
    let (there, back) = (mpsc::channel(), mpsc::channel());
    there.0.send(()).unwrap();
    let reader = |pass: mpsc::Sender<()>, turn: mpsc::Receiver<()>| {
        let (connection, stop) = (fixture.other(), stop.clone());
        thread::spawn(move || {
            let mut turns = 0;
            while !stop.load(Ordering::Relaxed) && turn.recv().is_ok() {
                if turns > 0 {
                    connection.execute_batch("COMMIT").unwrap();
                }
                begin_to_read(&connection);
                turns += 1;
                let _ = pass.send(());
            }
            turns
        })
    };
    let readers = [reader(there.0, back.1), reader(back.0, there.1)];
    let largest = fixture.append_often(&mut at, 6000).await;
    stop.store(true, Ordering::Relaxed);
    let turns: Vec<i32> = readers.map(|reader| reader.join().unwrap()).into();
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    assert!(largest < 10_000 * PAGE, "{largest}");
    assert!(fixture.is_intact());
}

#[tokio::test(flavor = "multi_thread")]
async fn explicit_checkpoints_succeed_during_appends_and_empty_the_log() {
    let fixture = Fixture::fast().await;
    let (mut at, store) = (Revision::ABSENT, fixture.store.clone());
    let emptying = tokio::spawn(async move {
        for _ in 0..20 {
            store.checkpoint().await.unwrap();
        }
    });
    fixture.append_often(&mut at, 1500).await;
    emptying.await.unwrap();
    fixture.store.checkpoint().await.unwrap();
    assert_eq!(fixture.log_size(), 0);
}

/// Returns whether another connection could begin a write transaction now.
fn may_be_written(connection: &Connection) -> bool {
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT").is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_append_has_to_begin_again_because_of_the_lock_of_the_stores_own_checkpoint() {
    let fixture = Fixture::new().await;
    let mut at = fixture.submit(vec![first("c", &["one"])]).await.await.unwrap();
    let begun = Arc::new(AtomicU64::new(0));
    let counted = begun.clone();
    let count = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, "BEGIN IMMEDIATE") = event {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let statements = TraceEventCodes::SQLITE_TRACE_STMT;
    fixture.store.queue().writer().observed().trace_v2(statements, Some(count)).unwrap();
    // While the checkpoint waits for this reader, the checkpoint has the write lock.
    let (reader, other) = (fixture.other(), fixture.other());
    begin_to_read(&reader);
    other.busy_timeout(Duration::ZERO).unwrap();
    let store = fixture.store.clone();
    let checkpoint = tokio::spawn(async move { store.checkpoint().await });
    let before = fixture.store.statistics().commits;
    for _ in 0..3 {
        while may_be_written(&other) && !checkpoint.is_finished() {
            tokio::task::yield_now().await;
        }
        fixture.append_often(&mut at, 1).await;
    }
    let commits = fixture.store.statistics().commits - before;
    assert_eq!(begun.load(Ordering::Relaxed), commits, "no transaction had to begin again");
    reader.execute_batch("COMMIT").unwrap();
    // The checkpoint may time out, for example if the machine was suspended.
    if let Err(error) = checkpoint.await.unwrap() {
        assert!(error.is_retryable(), "{error:?}");
        fixture.store.checkpoint().await.unwrap();
    }
    assert_eq!(fixture.log_size(), 0);
}

#[tokio::test]
async fn a_write_after_a_vacuum_succeeds_although_a_checkpoint_truncates_the_file_during_the_write()
{
    let fixture = Fixture::fast().await;
    let append = async |write| fixture.submit(vec![write]).await.await.unwrap();
    append(first("gone", &[&"g".repeat(500_000)])).await;
    fixture.store.delete(&key("gone")).await.unwrap();
    fixture.store.checkpoint().await.unwrap();
    let path = fixture.folder.path().join("chat.db");
    let size = || fs::metadata(&path).unwrap().len();
    let long = size();
    let other = fixture.other();
    other.execute_batch("PRAGMA wal_autocheckpoint = 0; VACUUM").unwrap();
    let one = first("c", &["one"]);
    append(one.clone()).await;
    assert_eq!(size(), long, "the vacuum is in the log");

    let checkpoint = move || {
        other.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        false
    };
    fixture.store.queue().writer().connection_mut().commit_hook(Some(checkpoint)).unwrap();
    let two = write("c", run(1), one.result(), &[&"t".repeat(100_000)]);
    append(two.clone()).await;
    fixture.store.queue().writer().connection_mut().commit_hook(None::<fn() -> bool>).unwrap();
    assert!(size() < long, "the file was truncated before the checkpoint of the new pages");

    append(write("c", run(1), two.result(), &["three"])).await;
    let texts = fixture.texts(&key("c")).await;
    assert_eq!(texts, ["one", &"t".repeat(100_000), "three"]);
    assert!(fixture.is_intact());
}
