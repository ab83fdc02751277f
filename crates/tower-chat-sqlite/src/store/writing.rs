//! The writing part of a store: the queue, the threads and the checkpoints.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tower_chat_core::BoxError;

use crate::{
    SqliteOptions,
    byte_budget::ByteBudget,
    checkpoints::Checkpoints,
    file::{NotSynced, StoreFile},
    queue::WriteQueue,
    writer::Writer,
};

/// The writing part of a store that was not opened read-only.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) queue: Arc<WriteQueue>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) budget: Arc<ByteBudget>,
    pub(super) checkpoints: Arc<Checkpoints>,
    /// The threads; `None` after the first call of [`retire`](Self::retire).
    threads: Mutex<Option<Threads>>,
}

#[derive(Debug)]
struct Threads {
    writer: JoinHandle<Result<(), NotSynced>>,
    checkpoints: JoinHandle<()>,
}

impl Writing {
    /// Starts the writer thread and the checkpoint thread.
    pub(super) fn start(
        file: &StoreFile,
        connection: Connection,
        options: &SqliteOptions,
    ) -> Result<Self, BoxError> {
        let checkpoints = Arc::new(Checkpoints::new(file.clone()));
        let writer = Writer::new(file.clone(), connection, checkpoints.clone())?;
        let queue = Arc::new(WriteQueue::new(writer, options.work_on_caller));
        let serving = queue.clone();
        let writer =
            thread::Builder::new().name(WRITER.to_owned()).spawn(move || serving.serve())?;
        let serving = checkpoints.clone();
        let name = CHECKPOINTS.to_owned();
        let threads = match thread::Builder::new().name(name).spawn(move || serving.serve()) {
            Ok(checkpoints) => Threads { writer, checkpoints },
            Err(error) => {
                queue.retire();
                return Err(error.into());
            }
        };
        let slots = Arc::new(Semaphore::new(options.max_queued));
        let budget = Arc::new(ByteBudget::new(options.max_queued_bytes));
        Ok(Self { queue, slots, budget, checkpoints, threads: Mutex::new(Some(threads)) })
    }

    /// Returns a blocking function that ends the threads. Only the function of the first call waits
    /// until all submitted writes are finished and durable.
    pub(super) fn retire(&self) -> impl FnOnce() -> Result<(), NotSynced> + Send + 'static {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (queue, checkpoints) = (self.queue.clone(), self.checkpoints.clone());
        move || {
            checkpoints.end();
            // The connection that is closed last copies the write-ahead log into the file. Of two
            // connections that are closed at the same time, each may find the other still open.
            // Therefore the writer closes its connection after all others. The panic of a thread is
            // ignored here, because it was already reported to the callers.
            match threads {
                Some(Threads { writer, checkpoints }) => {
                    drop(checkpoints.join());
                    queue.retire();
                    writer.join().unwrap_or(Ok(()))
                }
                None => {
                    queue.retire();
                    Ok(())
                }
            }
        }
    }
}

/// The name of the writer thread.
const WRITER: &str = "tower-chat-sqlite";
/// The name of the checkpoint thread.
const CHECKPOINTS: &str = "tower-chat-sqlite-checkpoints";
