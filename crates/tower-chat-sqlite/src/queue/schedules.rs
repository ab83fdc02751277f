//! Tests of the write queue with a real file, under many schedules. A schedule is one interleaving
//! of the threads.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use futures_util::FutureExt;
use shuttle::{future, thread};
use tempfile::TempDir;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        Revision, StoreError,
        author::{AppendError, Slot, Ticket, Write},
    },
};

use super::WriteQueue;
use crate::{
    Durability, SqliteOptions,
    byte_budget::ByteBudget,
    checkpoints::Checkpoints,
    file::StoreFile,
    submission::Submission,
    sync::{lose_notifications, try_schedules},
    writer::Writer,
};

/// The folder of the files of all schedules.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));
static CONVERSATIONS: AtomicU32 = AtomicU32::new(0);

const WRITES: usize = 3;

/// A queue with its writer thread.
struct Fixture {
    queue: Arc<WriteQueue>,
    budget: Arc<ByteBudget>,
    serving: thread::JoinHandle<bool>,
}

impl Fixture {
    /// Starts a queue; `work_on_caller` allows callers to execute their own writes.
    fn new(name: &str, work_on_caller: bool) -> Self {
        let options = SqliteOptions::new().with_durability(Durability::Normal);
        let path: PathBuf = FOLDER.path().join(name);
        let (file, connection) =
            StoreFile::open(Path::new(&path), &options).expect("the file opens");
        let checkpoints = Arc::new(Checkpoints::new(file.clone()));
        let writer = Writer::new(file, connection, checkpoints).expect("the writer is prepared");
        let queue = Arc::new(WriteQueue::new(writer, work_on_caller));
        let serving = queue.clone();
        let serving = thread::spawn(move || serving.serve().is_ok());
        Self { queue, budget: Arc::new(ByteBudget::new(1 << 20)), serving }
    }

    /// Starts a thread that submits consecutive writes to its own conversation, without waiting for
    /// their outcomes.
    fn submit(&self) -> thread::JoinHandle<Vec<Ticket>> {
        let (queue, budget) = (self.queue.clone(), self.budget.clone());
        thread::spawn(move || {
            let number = CONVERSATIONS.fetch_add(1, Ordering::Relaxed);
            let key = ConversationKey::new("tests", number.to_string());
            let mut expected = Revision::ABSENT;
            let writes = (0..WRITES).map(|write| {
                let id = MessageId { run: RunId::new(), index: 0 };
                let text = format!("write {write} of {number}");
                let write = Write::new(key.clone(), id, expected, [Message::user(text).into()]);
                expected = write.result();
                write
            });
            let append =
                |write| queue.append(Submission::append(Slot::unbounded(), vec![write], &budget));
            let mut tickets: Vec<Ticket> = writes.map(append).collect();
            // When a barrier is resolved, the tickets of all earlier submissions must have their
            // outcomes.
            let passed = queue.barrier(Some(&key)).map(|barrier| future::block_on(barrier).is_ok());
            if passed == Some(true) {
                tickets = tickets.into_iter().map(resolved).collect();
            }
            tickets
        })
    }

    /// Stops the queue and joins its thread.
    fn end(self) -> Arc<WriteQueue> {
        self.queue.retire();
        assert!(self.serving.join().expect("the thread ends"), "the thread ends without an error");
        assert_eq!(self.queue.state().unfinished.len(), 0);
        self.queue
    }
}

fn resolved(ticket: Ticket) -> Ticket {
    Ticket::done(ticket.now_or_never().expect("the barrier has passed"))
}

/// Submits writes from two other threads, and exclusive work from the calling thread.
fn store_all(name: &'static str, work_on_caller: bool) {
    let fixture = Fixture::new(name, work_on_caller);
    let submitters = [fixture.submit(), fixture.submit()];
    let exclusive = fixture.queue.run_exclusively(|| "done");
    for submitter in submitters {
        for ticket in submitter.join().expect("the thread ends") {
            future::block_on(ticket).expect("the write is stored");
        }
    }
    assert_eq!(future::block_on(exclusive).expect("the work is run"), "done");
    let queue = fixture.end();
    assert_eq!(queue.writes(), 2 * WRITES as u64);
}

#[test]
fn every_submission_is_stored_and_answered_in_order_by_the_thread() {
    try_schedules(|| store_all("thread.db", false));
}

#[test]
fn every_submission_is_stored_and_answered_in_order_by_its_caller_or_the_thread() {
    try_schedules(|| store_all("caller.db", true));
}

#[test]
fn a_submission_while_the_queue_stops_is_stored_or_refused() {
    try_schedules(|| {
        let fixture = Fixture::new("ending.db", true);
        let submitters = [fixture.submit(), fixture.submit()];
        let queue = fixture.end();
        let mut stored = 0;
        for submitter in submitters {
            let mut is_closed = false;
            for ticket in submitter.join().expect("the thread ends") {
                match future::block_on(ticket) {
                    Ok(_) => {
                        assert!(!is_closed, "a write is stored after a refused one");
                        stored += 1;
                    }
                    Err(AppendError { source: StoreError::Closed, .. }) => is_closed = true,
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
        assert_eq!(queue.writes(), stored);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_search_through_schedules_detects_a_lost_notification() {
    lose_notifications();
    try_schedules(|| store_all("lost.db", false));
}
