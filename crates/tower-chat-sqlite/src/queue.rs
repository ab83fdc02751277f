//! The write queue: the order of submissions, and the thread that executes them. A submission is a
//! unit of work of one caller: the writes of one append, or another change.

#[cfg(all(test, shuttle))]
mod schedules;

use std::{
    collections::VecDeque,
    mem,
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use tower_chat_core::{
    ConversationKey,
    store::{
        StoreError,
        author::{AppendError, Ticket},
    },
    telemetry::Commit,
};

use crate::{
    caller,
    file::{LOCK_TIMEOUT, NotSynced},
    group::{Due, Exclusive, Waiting, first},
    submission::{Append, Keys, Submission, Work},
    sync::{AtomicU64, Condvar, Mutex, MutexGuard, oneshot},
    telemetry::TELEMETRY,
    write_panicked::catch,
    writer::{Busy, Writer},
};

/// The queue of submissions, and the writer that executes them.
///
/// A leader is a thread that executes one group of submissions or one piece of exclusive work. At
/// most one leader is active at a time, and `State::led` is true while a leader is active. A caller
/// becomes the leader for its own append if its thread may block, no leader is active and the queue
/// is empty. The writer thread executes all other work.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    /// The state of the queue. A leader does not lock the state while the leader executes
    /// submissions.
    state: Mutex<State>,
    /// Wakes the writer thread.
    wake: Condvar,
    /// The writer. A leader locks the writer while the leader executes its work.
    writer: Mutex<Writer>,
    /// Whether callers may execute their own appends: `SqliteOptions::with_work_on_caller`.
    work_on_caller: bool,
    /// Whether the file contained rows of deleted conversations when the queue was created.
    has_deleted_rows: bool,
    /// The number of transactions that the writer has committed.
    commits: AtomicU64,
    /// The number of acknowledged writes.
    writes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The submissions and the exclusive work that wait for the writer thread, in order.
    waiting: VecDeque<Waiting>,
    /// Whether a leader is active.
    led: bool,
    /// The number of submissions that have finished since the queue was created.
    finished: u64,
    /// The conversations of each unfinished submission. The entries of the group that a leader is
    /// executing are first.
    unfinished: VecDeque<Keys>,
    /// The callers that wait for earlier submissions.
    barriers: Vec<Barrier>,
    /// Whether the queue refuses submissions and exclusive work.
    closed: bool,
    /// Whether the writer thread ends as soon as the queue is empty and no leader is active.
    retiring: bool,
}

/// A caller that waits until earlier submissions have finished.
#[derive(Debug)]
struct Barrier {
    /// The value of `State::finished` at which the barrier is resolved.
    until: u64,
    /// Sends the caller the message that the barrier is resolved.
    passed: oneshot::Sender<()>,
}

impl WriteQueue {
    pub(crate) fn new(writer: Writer, work_on_caller: bool) -> Self {
        let has_deleted_rows = writer.has_deleted_rows();
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            writer: Mutex::new(writer),
            work_on_caller,
            has_deleted_rows,
            commits: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// Executes an append on the calling thread if the caller may become the leader. Otherwise
    /// queues the append for the writer thread. If the queue is closed, the outcome is
    /// [`StoreError::Closed`].
    pub(crate) fn append(&self, append: Submission<Append>) -> Ticket {
        let may_lead = self.work_on_caller && append.caller_may_block() && caller::may_block();
        let mut state = self.state();
        if state.closed {
            return Ticket::done(Err(AppendError { completed: 0, source: StoreError::Closed }));
        }
        state.unfinished.push_back(append.keys());
        if may_lead && !state.led && state.waiting.is_empty() {
            state.led = true;
            drop(state);
            return self.lead_alone(append);
        }
        let (submission, ticket) = append.queued();
        self.enqueue(state, Waiting::Submission(submission));
        ticket
    }

    /// Queues a submission for the writer thread, or sets [`StoreError::Closed`] as its outcome.
    pub(crate) fn submit(&self, mut submission: Submission) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            submission.refuse();
            return submission.resolve();
        }
        state.unfinished.push_back(submission.keys());
        self.enqueue(state, Waiting::Submission(submission));
    }

    /// Puts `work` into the queue. The work acquires SQLite's write lock on its own connection. The
    /// writer thread executes the work between two groups, so that no submission of this store
    /// waits for this lock. If the receiver is dropped before the work begins, the work is not
    /// executed. The receiver resolves to an error if the queue is closed, the work panics, or the
    /// writer thread ends.
    pub(crate) fn run_exclusively<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (reply, outcome) = oneshot::channel();
        let work = move || {
            if !reply.is_closed() {
                // Sending fails if the receiver was dropped, and this error is ignored.
                let _ = reply.send(work());
            }
        };
        let state = self.state();
        if !state.closed {
            self.enqueue(state, Waiting::Exclusive(Exclusive(Box::new(work))));
        }
        outcome
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, waiting: Waiting) {
        state.waiting.push_back(waiting);
        // An active leader wakes the writer thread when it has finished.
        if !state.led {
            self.wake.notify_one();
        }
    }

    /// Creates a barrier, and returns its receiver, which resolves when all earlier submissions
    /// have finished. With a key, the receiver resolves already after the last submission that
    /// changes or copies this conversation. Returns `None` if there is no such unfinished
    /// submission. If the writer thread ends first, the receiver resolves to an error.
    pub(crate) fn barrier(&self, key: Option<&ConversationKey>) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        let last = match key {
            None => state.unfinished.len().checked_sub(1)?,
            Some(key) => state.unfinished.iter().rposition(|keys| keys.contains(key))?,
        };
        let (passed, receiver) = oneshot::channel();
        let until = state.finished + last as u64 + 1;
        state.barriers.push(Barrier { until, passed });
        Some(receiver)
    }

    /// Makes the queue refuse new submissions and new exclusive work. The writer thread still
    /// executes the entries of the queue.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Closes the queue, and ends the writer thread as soon as its work is done.
    pub(crate) fn retire(&self) {
        let mut state = self.state();
        state.closed = true;
        state.retiring = true;
        self.wake.notify_one();
    }

    /// Executes the work of the writer thread until [`retire`](Self::retire) ends it, and then
    /// syncs the data.
    pub(crate) fn serve(&self) -> Result<(), NotSynced> {
        let _end = ThreadEnd(self);
        if self.has_deleted_rows {
            self.writer().purge_deleted_rows();
        }
        while let Some((lead, due)) = self.next() {
            match due {
                Due::Group(mut group) => match self.write(&mut group, LOCK_TIMEOUT) {
                    Ok(()) => lead.finish(group),
                    Err(Busy) => lead.give_back(group),
                },
                Due::Exclusive(Exclusive(work)) => {
                    let _writer = self.writer();
                    // A panic makes the caller's receiver resolve to an error.
                    drop(catch(work));
                    drop(lead);
                }
            }
        }
        self.writer().finish()
    }

    #[cfg(test)]
    pub(crate) fn is_led(&self) -> bool {
        self.state().led
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is queued and no leader is active, and makes the writer thread the
    /// leader. Returns `None` if the writer thread should end.
    fn next(&self) -> Option<(Lead<'_>, Due)> {
        let mut state = self.state();
        loop {
            if !state.led {
                if let Some(due) = first(&mut state.waiting) {
                    state.led = true;
                    let submissions = match &due {
                        Due::Group(group) => group.len(),
                        Due::Exclusive(_) => 0,
                    };
                    return Some((Lead { queue: self, submissions }, due));
                }
                if state.retiring {
                    return None;
                }
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Executes the append of a caller that has become the leader. If tokio does not allow the
    /// thread to block, or another process has the lock on the file, stores nothing, and puts the
    /// append at the front of the queue.
    fn lead_alone(&self, append: Submission<Append>) -> Ticket {
        let lead = Lead { queue: self, submissions: 1 };
        let mut group = [append];
        let done = caller::block(|| self.write(&mut group, Duration::ZERO).is_ok());
        let [append] = group;
        if done == Some(true) {
            // The append sets its outcome before the lead ends and resolves barriers.
            let ticket = append.done();
            drop(lead);
            return ticket;
        }
        let (submission, ticket) = append.queued();
        lead.give_back([submission]);
        ticket
    }

    /// Executes a group of submissions. A panic outside of the statements of one submission fails
    /// the whole group. If another process has the lock on the file, waits up to `lock_timeout`.
    /// Returns [`Busy`] only if `lock_timeout` is zero.
    fn write<W>(&self, group: &mut [Submission<W>], lock_timeout: Duration) -> Result<(), Busy>
    where
        Submission<W>: Work,
    {
        let mut writer = self.writer();
        let began = TELEMETRY.is_listening().then(Instant::now);
        group.iter_mut().for_each(Submission::begin);
        let outcome = catch(|| writer.write(group, lock_timeout)).unwrap_or_else(|panic| {
            writer.panicked(group, panic);
            Ok(())
        });
        let stored: usize = group.iter().map(Work::stored).sum();
        self.commits.store(writer.commits(), Ordering::Relaxed);
        self.writes.fetch_add(stored as u64, Ordering::Relaxed);
        drop(writer);
        if let Some(began) = began.filter(|_| stored > 0) {
            let stored_ones = group.iter().filter(|submission| submission.stored() > 0);
            let bytes = stored_ones.map(Submission::bytes).sum();
            TELEMETRY.committed(Commit { writes: stored, bytes, duration: began.elapsed() });
        }
        outcome
    }
}

/// The guard of an active leader. Dropping the guard, even by a panic, marks the submissions of the
/// leader as finished, resolves the barriers that waited for them, and wakes the writer thread if
/// the queue is not empty.
struct Lead<'a> {
    queue: &'a WriteQueue,
    /// The number of submissions that the leader executes; 0 for exclusive work, and after
    /// [`give_back`](Self::give_back).
    submissions: usize,
}

impl Lead<'_> {
    /// Resolves the tickets of the group, and ends the lead.
    fn finish(self, group: impl IntoIterator<Item = Submission>) {
        // A barrier must not be resolved before the tickets of the earlier submissions have their
        // outcomes.
        for submission in group {
            submission.resolve();
        }
        drop(self);
    }

    /// Ends the lead without executing the group, and returns the group to the front of the queue.
    fn give_back(
        mut self,
        group: impl IntoIterator<Item = Submission, IntoIter: DoubleEndedIterator>,
    ) {
        self.submissions = 0;
        let mut state = self.queue.state();
        for submission in group.into_iter().rev() {
            state.waiting.push_front(Waiting::Submission(submission));
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.led = false;
        state.finished += self.submissions as u64;
        state.unfinished.drain(..self.submissions);
        let finished = state.finished;
        let passed: Vec<_> =
            state.barriers.extract_if(.., |barrier| barrier.until <= finished).collect();
        if !state.waiting.is_empty() || state.retiring {
            self.queue.wake.notify_one();
        }
        drop(state);
        for barrier in passed {
            // Sending fails if the receiver was dropped, and this error is ignored.
            let _ = barrier.passed.send(());
        }
    }
}

/// The guard of the writer thread. When the thread ends, even by a panic, the guard closes the
/// queue, refuses the waiting submissions, and makes the receivers of exclusive work and of
/// barriers resolve to an error.
struct ThreadEnd<'a>(&'a WriteQueue);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        let waiting: Vec<Submission> = mem::take(&mut state.waiting)
            .into_iter()
            .filter_map(|waiting| match waiting {
                Waiting::Submission(submission) => Some(submission),
                Waiting::Exclusive(_) => None,
            })
            .collect();
        let unfinished = state.unfinished.len() - waiting.len();
        state.unfinished.truncate(unfinished);
        state.barriers.clear();
        drop(state);
        for mut submission in waiting {
            submission.refuse();
            submission.resolve();
        }
    }
}
