//! The queue under many schedules, over a real file.

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

/// One file for all schedules, each of which has conversations of its own.
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
    /// A queue whose callers may do their own writes, or may not.
    fn new(name: &str, work_on_caller: bool) -> Self {
        let options = SqliteOptions::new().with_durability(Durability::Normal);
        let path: PathBuf = FOLDER.path().join(name);
        let (file, connection) = StoreFile::open(Path::new(&path), &options).expect("it opens");
        let checkpoints = Arc::new(Checkpoints::new(file.clone()));
        let writer = Writer::new(file, connection, checkpoints).expect("it is prepared");
        let queue = Arc::new(WriteQueue::new(writer, work_on_caller));
        let serving = queue.clone();
        let serving = thread::spawn(move || serving.serve().is_ok());
        Self { queue, budget: Arc::new(ByteBudget::new(1 << 20)), serving }
    }

    /// A thread that submits writes to a conversation of its own, each going on from the one before,
    /// and waits for none of them: they are stored in this order or refused.
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
            // After a barrier all earlier tickets are resolved.
            let passed = queue.barrier(Some(&key)).map(|barrier| future::block_on(barrier).is_ok());
            if passed == Some(true) {
                tickets = tickets.into_iter().map(resolved).collect();
            }
            tickets
        })
    }

    /// Ends the thread.
    fn end(self) -> Arc<WriteQueue> {
        self.queue.retire();
        assert!(self.serving.join().expect("it ends"), "what was written is synced");
        assert_eq!(self.queue.state().unfinished.len(), 0);
        self.queue
    }
}

fn resolved(ticket: Ticket) -> Ticket {
    Ticket::done(ticket.now_or_never().expect("the barrier has passed"))
}

/// Two threads submit, a third runs work of its own in between.
fn store_all(name: &'static str, work_on_caller: bool) {
    let fixture = Fixture::new(name, work_on_caller);
    let submitters = [fixture.submit(), fixture.submit()];
    let exclusive = fixture.queue.run_exclusively(|| "done");
    for submitter in submitters {
        for ticket in submitter.join().expect("it ends") {
            future::block_on(ticket).expect("it is stored");
        }
    }
    assert_eq!(future::block_on(exclusive).expect("it is run"), "done");
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
fn what_is_submitted_while_the_queue_ends_is_stored_or_refused() {
    try_schedules(|| {
        let fixture = Fixture::new("ending.db", true);
        let submitters = [fixture.submit(), fixture.submit()];
        let queue = fixture.end();
        let mut stored = 0;
        for submitter in submitters {
            let mut is_closed = false;
            for ticket in submitter.join().expect("it ends") {
                match future::block_on(ticket) {
                    Ok(_) => {
                        assert!(!is_closed, "one is stored after one that was refused");
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
fn a_notification_that_is_lost_is_found() {
    lose_notifications();
    try_schedules(|| store_all("lost.db", false));
}
