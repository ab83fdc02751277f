//! A queue that executes the submissions of a store, which are appends and other changes, as tasks
//! of a runtime.

use std::{sync::Arc, time::Instant};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use super::{
    Revision, StoreError,
    author::{AppendError, Slot, Ticket, Write},
    keyed_queue::KeyedQueue,
};
use crate::{
    ConversationKey, format,
    telemetry::{Commit, StoreTelemetry},
};

/// Executes the submissions of a store with an asynchronous client of its database or server.
///
/// Each submission is a task. The tasks of one conversation run one after the other, in the order
/// of their submission. The tasks of different conversations run concurrently. The task of an
/// [append](Self::append) is executed even if its caller stops waiting, as long as the runtime of
/// the queue runs. A [change](Self::change) is not executed if its caller stops waiting before the
/// change begins.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, Message, MessageId, RunId};
/// use tower_chat_core::store::{Revision, author::{TaskQueue, Write}};
/// let queue = TaskQueue::new(64);
/// let key = ConversationKey::new("alice", "support");
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
/// let slot = queue.reserve().await?;
/// let stored = queue.append(slot, vec![write], async |write: Write| Ok(write.result()));
/// queue.settle(Some(&key)).await; // as a store does before it reads
/// assert_eq!(stored.await.map_err(|error| error.source)?.sequence, 1);
/// # Ok::<(), tower_chat_core::store::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct TaskQueue {
    queue: KeyedQueue,
    slots: Arc<Semaphore>,
    runtime: Handle,
    telemetry: Option<StoreTelemetry>,
}

impl TaskQueue {
    /// Creates a queue of at most `capacity` submissions. The tasks of the submissions run on the
    /// current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and if `capacity` is larger than [`Semaphore::MAX_PERMITS`].
    pub fn new(capacity: usize) -> Self {
        Self {
            queue: KeyedQueue::default(),
            slots: Arc::new(Semaphore::new(capacity)),
            runtime: Handle::current(),
            telemetry: None,
        }
    }

    /// Records the number and the waiting time of queued appends, the duration of each write, and
    /// conflicts.
    #[must_use]
    pub fn with_telemetry(mut self, telemetry: StoreTelemetry) -> Self {
        self.telemetry = Some(telemetry);
        self
    }

    /// Waits for a slot; see [`HistoryStore::reserve`](super::HistoryStore::reserve).
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`], if the queue is closed.
    pub async fn reserve(&self) -> Result<Slot, StoreError> {
        let permit = self.slots.clone().acquire_owned().await;
        permit.map(Slot::guarded).map_err(|_| StoreError::Closed)
    }

    /// Returns a slot if one is free and the queue is not closed.
    pub fn try_reserve(&self) -> Option<Slot> {
        self.slots.clone().try_acquire_owned().ok().map(Slot::guarded)
    }

    /// Submits writes to their conversations. The task calls `append` for each write, in order, and
    /// stops at the first write that fails. The ticket resolves with the outcome.
    pub fn append<Stored>(
        &self,
        slot: Slot,
        writes: Vec<Write>,
        mut append: impl FnMut(Write) -> Stored + Send + 'static,
    ) -> Ticket
    where
        Stored: Future<Output = Result<Revision, StoreError>> + Send,
    {
        let keys = writes.iter().map(|write| write.key().clone()).collect();
        let Some(mut guard) = self.queue.enqueue(keys) else {
            return Ticket::done(Err(AppendError { completed: 0, source: StoreError::Closed }));
        };
        let (reply, ticket) = Ticket::channel();
        let telemetry = self.telemetry.filter(|telemetry| telemetry.is_listening());
        let size = |write: &Write| telemetry.map_or(0, |_| encoded_bytes(write));
        let mut queued = telemetry
            .map(|telemetry| telemetry.queued(writes.len(), Some(writes.iter().map(size).sum())));
        self.runtime.spawn(async move {
            guard.wait().await;
            if let Some(queued) = &mut queued {
                queued.begin();
            }
            let mut outcome = Ok(Revision::ABSENT);
            for (completed, write) in writes.into_iter().enumerate() {
                let measured = telemetry.map(|it| (it, encoded_bytes(&write), Instant::now()));
                let stored = append(write).await;
                if let (Some((telemetry, bytes, began)), Ok(_)) = (measured, &stored) {
                    telemetry.committed(Commit { writes: 1, bytes, duration: began.elapsed() });
                }
                outcome = stored.map_err(|source| AppendError { completed, source });
                if outcome.is_err() {
                    break;
                }
            }
            if let (Some(telemetry), Err(error)) = (telemetry, &outcome) {
                telemetry.refused(&error.source);
            }
            if let Some(queued) = queued {
                queued.end();
            }
            drop(slot);
            reply.send(outcome);
            // The guard is dropped last, so that the ticket is already resolved when `settle`
            // returns.
            drop(guard);
        });
        ticket
    }

    /// Submits a change of these conversations, and returns its outcome. The change begins when all
    /// earlier submissions to these conversations have ended. If the future is dropped before the
    /// change begins, nothing is changed. If the future is dropped later, the change is completed.
    ///
    /// # Errors
    ///
    /// The error of the change; [`StoreError::Closed`] if the queue is closed, or the task ends
    /// without an outcome because it panics or the runtime shuts down.
    pub async fn change<T: Send + 'static>(
        &self,
        keys: Vec<ConversationKey>,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let slot = self.reserve().await?;
        self.change_in_order(slot, keys, change).await
    }

    /// Submits a change as [`change`](Self::change) does, without waiting for a slot. A store uses
    /// this method if the caller of the change may already have a slot, because waiting for another
    /// slot could then be a deadlock.
    ///
    /// # Errors
    ///
    /// The errors of [`change`](Self::change).
    pub async fn change_without_slot<T: Send + 'static>(
        &self,
        keys: Vec<ConversationKey>,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.change_in_order(Slot::unbounded(), keys, change).await
    }

    async fn change_in_order<T: Send + 'static>(
        &self,
        slot: Slot,
        keys: Vec<ConversationKey>,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut guard = self.queue.enqueue(keys).ok_or(StoreError::Closed)?;
        let (reply, outcome) = oneshot::channel();
        self.runtime.spawn(async move {
            guard.wait().await;
            if reply.is_closed() {
                return;
            }
            let outcome = change.await;
            drop(slot);
            // Sending fails if the caller has dropped its future.
            drop(reply.send(outcome));
            drop(guard);
        });
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits until all earlier submissions have ended. If `key` is set, waits only for the earlier
    /// submissions to this conversation.
    pub async fn settle(&self, key: Option<&ConversationKey>) {
        self.queue.settle(key).await;
    }

    /// Closes the queue: refuses new submissions, and waits until all earlier ones have ended.
    pub async fn close(&self) {
        self.slots.close();
        self.queue.close();
        self.settle(None).await;
    }
}

/// Returns the size of a write's messages in stored form, in bytes.
fn encoded_bytes(write: &Write) -> usize {
    write.messages().iter().map(|message| format::encode(message).len()).sum()
}
