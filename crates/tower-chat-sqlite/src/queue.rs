//! The write queue: the order of submissions, and the thread that executes them.

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
    file::{NotSynced, PATIENCE},
    group::{Due, Exclusive, Waiting, first},
    submission::{Append, Keys, Submission, Work},
    sync::{AtomicU64, Condvar, Mutex, MutexGuard, oneshot},
    telemetry::TELEMETRY,
    write_panicked::catch,
    writer::{Busy, Writer},
};

/// The queue of submissions, and the writer that executes them.
///
/// A leader executes one group of submissions. A caller leads its own submission if no other leader
/// is active and no submission waits. Otherwise the writer thread leads the waiting submissions,
/// and the exclusive work between them. The mutex of the state decides which thread leads.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    /// Wakes the writer thread.
    wake: Condvar,
    writer: Mutex<Writer>,
    work_on_caller: bool,
    /// Whether the opened file contains rows of deleted conversations.
    has_deleted_rows: bool,
    commits: AtomicU64,
    writes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Whether a leader is active.
    led: bool,
    /// The number of submissions that have finished since the queue was created.
    finished: u64,
    /// The conversations of the unfinished submissions: first those of the active group, then those
    /// that wait.
    unfinished: VecDeque<Keys>,
    barriers: Vec<Barrier>,
    /// Whether the queue refuses submissions.
    closed: bool,
    /// Whether the writer thread ends when the queue is empty.
    retiring: bool,
}

/// A caller that waits until this many submissions have finished.
#[derive(Debug)]
struct Barrier {
    until: u64,
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

    /// Executes an append on the caller's thread, or queues it for the writer thread.
    pub(crate) fn append(&self, append: Submission<Append>) -> Ticket {
        let may_lead = self.work_on_caller && append.may_block() && caller::may_block();
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

    /// Queues a submission for the writer thread.
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

    /// Queues work that takes SQLite's lock on another connection. The writer thread executes it
    /// between two groups, so that no submission of this store fails on that lock. It is skipped if
    /// the receiver was dropped. The sender is dropped without an outcome if the queue is closed.
    pub(crate) fn run_exclusively<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (reply, outcome) = oneshot::channel();
        let work = move || {
            if !reply.is_closed() {
                // The receiver may have been dropped.
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
        // The active leader wakes the thread when it has finished.
        if !state.led {
            self.wake.notify_one();
        }
    }

    /// Returns a receiver that resolves when all submissions so far have finished, or all that
    /// change one conversation. Returns `None` if there are none.
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

    /// Refuses submissions from now on.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Refuses submissions from now on, and ends the writer thread once the queue is empty.
    pub(crate) fn retire(&self) {
        let mut state = self.state();
        state.closed = true;
        state.retiring = true;
        self.wake.notify_one();
    }

    /// Runs the writer thread.
    pub(crate) fn serve(&self) -> Result<(), NotSynced> {
        let _end = ThreadEnd(self);
        if self.has_deleted_rows {
            self.writer().purge_deleted_rows();
        }
        while let Some((lead, due)) = self.next() {
            match due {
                Due::Group(mut group) => match self.write(&mut group, PATIENCE) {
                    Ok(()) => lead.finish(group),
                    Err(Busy) => lead.give_back(group),
                },
                Due::Exclusive(Exclusive(work)) => {
                    let _writer = self.writer();
                    // A panic drops the sender, which the caller receives as an error.
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

    /// Waits for work and becomes its leader. Returns `None` when the queue retires.
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

    /// Executes the caller's own submission. If another process has the file lock, the submission
    /// goes to the front of the queue, for the writer thread.
    fn lead_alone(&self, append: Submission<Append>) -> Ticket {
        let lead = Lead { queue: self, submissions: 1 };
        let mut group = [append];
        let done = caller::block(|| self.write(&mut group, Duration::ZERO).is_ok());
        let [append] = group;
        if done == Some(true) {
            // The ticket is resolved before the lead ends, as for a group.
            let ticket = append.done();
            drop(lead);
            return ticket;
        }
        let (submission, ticket) = append.queued();
        lead.give_back([submission]);
        ticket
    }

    fn write<W>(&self, group: &mut [Submission<W>], patience: Duration) -> Result<(), Busy>
    where
        Submission<W>: Work,
    {
        let mut writer = self.writer();
        let began = TELEMETRY.is_listening().then(Instant::now);
        group.iter_mut().for_each(Submission::begin);
        let outcome = catch(|| writer.write(group, patience)).unwrap_or_else(|panic| {
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

/// The guard of a leader, for one group or one piece of exclusive work. It is dropped even after a
/// panic.
struct Lead<'a> {
    queue: &'a WriteQueue,
    submissions: usize,
}

impl Lead<'_> {
    /// Resolves the tickets of the group, and ends the lead.
    fn finish(self, group: impl IntoIterator<Item = Submission>) {
        // The tickets are resolved before the barrier, so that every earlier ticket has its outcome
        // when the barrier resolves.
        for submission in group {
            submission.resolve();
        }
        drop(self);
    }

    /// Ends the lead without a result. The group goes to the front of the queue.
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
            // The receiver may have been dropped.
            let _ = barrier.passed.send(());
        }
    }
}

/// Closes the queue when the writer thread ends, also after a panic, and refuses the waiting
/// submissions.
struct ThreadEnd<'a>(&'a WriteQueue);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        // Dropping exclusive work drops its sender, which the caller receives as an error.
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
