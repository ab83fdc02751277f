//! Tests of which thread executes a write: the calling thread, or the writer thread.

use std::{
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

use rusqlite::trace::{TraceEvent, TraceEventCodes};
use tokio::task::LocalSet;
use tower_chat_core::store::{
    HistoryStore, Revision,
    author::{Slot, Write},
};

use super::{Fixture, Held, first, hold_the_lead, key, run, unbounded, write};
use crate::SqliteStore;

type Threads = Arc<Mutex<Vec<ThreadId>>>;

/// Records the thread of every transaction.
fn record_threads(store: &SqliteStore) -> Threads {
    let threads = Threads::default();
    let seen = threads.clone();
    let hook = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, "BEGIN IMMEDIATE") = event {
            seen.lock().unwrap().push(thread::current().id());
        }
    };
    let writer = &mut store.queue().writer();
    writer.connection_mut().trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(hook)).unwrap();
    threads
}

/// Returns whether the calling thread executes an append itself.
async fn is_done_by_caller(store: &SqliteStore, slot: Slot) -> bool {
    let threads = record_threads(store);
    let before = store.statistics().writes;
    let write = first(&before.to_string(), &["text"]);
    let ticket = store.append(slot, vec![write]);
    let caller = thread::current().id();
    ticket.await.unwrap();
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 1);
    threads[0] == caller
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_multi_thread_runtime_an_uncontended_caller_executes_its_own_write() {
    let fixture = Fixture::new().await;
    assert!(is_done_by_caller(&fixture.store, Slot::unbounded()).await, "in block_on");
    let store = fixture.store.clone();
    let task = async move { is_done_by_caller(&store, Slot::unbounded()).await };
    assert!(tokio::spawn(task).await.unwrap(), "in a task");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writer_thread_executes_the_write_of_a_caller_that_must_not_block() {
    let fixture = Fixture::new().await;
    assert!(!is_done_by_caller(&fixture.store, unbounded()).await);
}

#[tokio::test]
async fn on_a_current_thread_runtime_the_writer_thread_executes_the_write() {
    let fixture = Fixture::new().await;
    assert!(!is_done_by_caller(&fixture.store, Slot::unbounded()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_work_on_the_caller_the_writer_thread_executes_every_write() {
    let fixture = Fixture::with(SqliteStore::options().with_work_on_caller(false)).await;
    assert!(!is_done_by_caller(&fixture.store, Slot::unbounded()).await);
}

#[test]
fn inside_a_local_set_the_writer_thread_executes_the_write() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let fixture = Fixture::new().await;
        tokio::task::spawn_local(async move {
            assert!(!is_done_by_caller(&fixture.store, Slot::unbounded()).await);
            // The store does not repeat a call of `block_in_place` that has panicked on this
            // thread.
            assert!(!is_done_by_caller(&fixture.store, Slot::unbounded()).await);
        })
        .await
        .unwrap();
    });
}

/// The write of the caller waits for a lock that a task on the same worker thread releases. Without
/// `block_in_place`, that task would never run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tasks_continue_while_a_caller_executes_its_write() {
    let fixture = Fixture::new().await;
    let store = fixture.store.clone();
    let caller = tokio::spawn(async move {
        assert!(is_done_by_caller(&store, Slot::unbounded()).await);
        let held = Held::new(&store);
        let other = tokio::spawn(async move { drop(held) });
        store.append(Slot::unbounded(), vec![first("d", &["text"])]).await.unwrap();
        other.await.unwrap();
    });
    caller.await.unwrap();
    assert_eq!(fixture.texts(&key("d")).await, ["text"]);
}

#[test]
fn outside_of_a_runtime_the_writer_thread_executes_the_write() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let threads = record_threads(&fixture.store);
    let ticket = fixture.store.append(Slot::unbounded(), vec![first("c", &["one"])]);
    runtime.block_on(ticket).unwrap();
    assert_ne!(threads.lock().unwrap()[0], thread::current().id());
}

struct AppendsInDrop(SqliteStore, Option<Write>);

impl Drop for AppendsInDrop {
    fn drop(&mut self) {
        let slot = Slot::unbounded().without_blocking();
        drop(self.0.append(slot, self.1.take().into_iter().collect()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_submitted_in_drop_is_stored() {
    let fixture = Fixture::new().await;
    let threads = record_threads(&fixture.store);
    let caller = thread::current().id();
    drop(AppendsInDrop(fixture.store.clone(), Some(first("c", &["last words"]))));
    assert_eq!(fixture.texts(&key("c")).await, ["last words"]);
    assert_ne!(threads.lock().unwrap()[0], caller);
}

#[tokio::test]
async fn queued_writes_share_a_commit_and_keep_their_order() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut tickets = Vec::new();
    let (mut a, mut b) = (Revision::ABSENT, Revision::ABSENT);
    let held = hold_the_lead(store).await;
    for number in 0..10 {
        let text = number.to_string();
        let (to_a, to_b) = (write("a", run(1), a, &[&text]), write("b", run(2), b, &[&text]));
        (a, b) = (to_a.result(), to_b.result());
        tickets.push(store.append(unbounded(), vec![to_a]));
        tickets.push(store.append(unbounded(), vec![to_b]));
    }
    drop(held);
    for ticket in tickets {
        ticket.await.unwrap();
    }
    let statistics = store.statistics();
    assert_eq!((statistics.commits, statistics.writes), (2, 21));
    let expected: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    assert_eq!(fixture.texts(&key("a")).await, expected);
    assert_eq!(fixture.texts(&key("b")).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_write_of_many_concurrent_callers_is_stored() {
    let fixture = Fixture::new().await;
    let tasks: Vec<_> = (0..16)
        .map(|number: u8| {
            let store = fixture.store.clone();
            tokio::spawn(async move {
                let mut revision = Revision::ABSENT;
                for text in ["one", "two", "three", "four", "five"] {
                    let slot = store.reserve().await.unwrap();
                    let write = write(&number.to_string(), run(number + 1), revision, &[text]);
                    revision = store.append(slot, vec![write]).await.unwrap();
                    assert_eq!(
                        store.head(&key(&number.to_string())).await.unwrap().revision,
                        revision
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for number in 0..16 {
        let texts = fixture.texts(&key(&number.to_string())).await;
        assert_eq!(texts, ["one", "two", "three", "four", "five"]);
    }
    assert_eq!(fixture.store.statistics().writes, 80);
    assert!(fixture.store.statistics().commits <= 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_its_caller_returns_to_the_queue_stays_before_later_writes() {
    let fixture = Fixture::new().await;
    let other = fixture.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let one = first("c", &["one"]);
    let two = write("c", run(1), one.result(), &["two"]);
    let threads = record_threads(&fixture.store);
    let held = Held::new(&fixture.store);
    let store = fixture.store.clone();
    let leader = tokio::spawn(async move { store.append(Slot::unbounded(), vec![one]).await });
    while !fixture.store.queue().is_led() {
        tokio::task::yield_now().await;
    }
    let later = fixture.store.append(unbounded(), vec![two]);
    // The thread of the caller finds the file locked, and returns its write to the queue. The
    // writer thread then waits for the file lock.
    drop(held);
    while threads.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    other.execute_batch("COMMIT").unwrap();
    leader.await.unwrap().unwrap();
    later.await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["one", "two"]);
}
