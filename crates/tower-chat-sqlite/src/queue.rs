//! The queue of writes: who does them, and in what order.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use tower_chat_core::{
    ConversationKey,
    store::{AppendError, StoreError, Ticket},
};

use crate::{
    caller,
    file::{NotSynced, PATIENCE},
    submission::{Append, Keys, Submission, Work},
    write_panicked::catch,
    writer::{Busy, Writer},
};

/// How much one transaction holds of what waits, at least one submission: beyond that a larger one
/// would save little more of the disk's time, and keep everybody of it waiting longer.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_SUBMISSIONS: usize = 256;

/// Submissions in order, and the writer that does them.
///
/// Whoever leads does one group of submissions: a caller its own, if nobody else leads or waits;
/// the writer thread those that wait, and what takes its turn between them. Who leads is decided
/// under the mutex of the state.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    /// Tells the writer thread that there is something to do.
    wake: Condvar,
    writer: Mutex<Writer>,
    work_on_caller: bool,
    /// Rows of deleted conversations are left in the file that was opened.
    has_remains: bool,
    commits: AtomicU64,
    writes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Somebody does a group, or takes a turn, at the moment.
    led: bool,
    /// How many submissions were finished, ever.
    finished: u64,
    /// What the submissions after those change: first of the group under way, then of the waiting.
    unfinished: VecDeque<Keys>,
    barriers: Vec<Barrier>,
    /// No more is taken.
    closed: bool,
    /// The writer thread ends when nothing is left.
    retiring: bool,
}

#[derive(Debug)]
enum Waiting {
    Submission(Submission),
    Turn(Turn),
}

/// Something else than a submission that is to be done while the writer rests.
struct Turn(Box<dyn FnOnce() + Send>);

/// What a leader does.
enum Due {
    Group(Vec<Submission>),
    Turn(Turn),
}

/// Somebody who waits until so many submissions are finished.
#[derive(Debug)]
struct Barrier {
    until: u64,
    passed: oneshot::Sender<()>,
}

impl WriteQueue {
    pub(crate) fn new(writer: Writer, work_on_caller: bool) -> Self {
        let has_remains = writer.has_remains();
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            writer: Mutex::new(writer),
            work_on_caller,
            has_remains,
            commits: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// Takes an append: does it at once, or leaves it to the writer thread.
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

    /// Leaves a submission to the writer thread.
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

    /// Leaves to the writer thread what needs SQLite's lock on another connection, in turn with the
    /// submissions: nobody of this store then meets that lock, and each waits no longer than for
    /// what came before. Not done if nobody waits for its outcome any more. Without an outcome, the
    /// queue takes nothing more.
    pub(crate) fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (reply, outcome) = oneshot::channel();
        let turn = move || {
            if !reply.is_closed() {
                // Whoever waited may have given up.
                let _ = reply.send(work());
            }
        };
        let state = self.state();
        if !state.closed {
            self.enqueue(state, Waiting::Turn(Turn(Box::new(turn))));
        }
        outcome
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, waiting: Waiting) {
        state.waiting.push_back(waiting);
        // A leader wakes the thread when it is done.
        if !state.led {
            self.wake.notify_one();
        }
    }

    /// Something to wait for until everything submitted so far is finished, or everything that
    /// changes one conversation. `None` if there is no such thing.
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

    /// Takes no more submissions.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Takes no more submissions, and ends the writer thread when it has done those that wait.
    pub(crate) fn retire(&self) {
        let mut state = self.state();
        state.closed = true;
        state.retiring = true;
        self.wake.notify_one();
    }

    /// The writer thread.
    pub(crate) fn serve(&self) -> Result<(), NotSynced> {
        let _gone = Gone(self);
        if self.has_remains {
            self.writer().remove_remains();
        }
        while let Some((lead, due)) = self.next() {
            match due {
                Due::Group(mut group) => match self.write(&mut group, PATIENCE) {
                    Ok(()) => lead.finish(group),
                    Err(Busy) => lead.give_back(group),
                },
                Due::Turn(Turn(work)) => {
                    let _writer = self.writer();
                    // Who waits for the outcome of a turn that panicked is told when it is dropped.
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

    /// Waits for submissions and takes the lead over the first of them. `None` to end.
    fn next(&self) -> Option<(Lead<'_>, Due)> {
        let mut state = self.state();
        loop {
            if !state.led {
                if let Some(due) = first(&mut state.waiting) {
                    state.led = true;
                    let submissions = match &due {
                        Due::Group(group) => group.len(),
                        Due::Turn(_) => 0,
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

    /// The caller does its own submission; if another process holds the file, the writer thread
    /// does it before all others.
    fn lead_alone(&self, append: Submission<Append>) -> Ticket {
        let lead = Lead { queue: self, submissions: 1 };
        let mut group = [append];
        let done = caller::block(|| self.write(&mut group, Duration::ZERO).is_ok());
        let [append] = group;
        if done == Some(true) {
            // Its place is given back before the lead ends, as with a group.
            let ticket = append.done();
            drop(lead);
            return ticket;
        }
        let (submission, ticket) = append.queued();
        lead.give_back([submission]);
        ticket
    }

    fn write<W: Work>(&self, group: &mut [W], patience: Duration) -> Result<(), Busy> {
        let mut writer = self.writer();
        let outcome = catch(|| writer.write(group, patience)).unwrap_or_else(|panic| {
            writer.panicked(group, panic);
            Ok(())
        });
        let stored: usize = group.iter().map(Work::stored).sum();
        self.commits.store(writer.commits(), Ordering::Relaxed);
        self.writes.fetch_add(stored as u64, Ordering::Relaxed);
        outcome
    }
}

/// Takes what is first: a turn, or as many of the submissions before one as a transaction may hold.
fn first(waiting: &mut VecDeque<Waiting>) -> Option<Due> {
    let mut group = Vec::new();
    let mut bytes = 0;
    while group.len() < GROUP_SUBMISSIONS {
        match waiting.pop_front() {
            Some(Waiting::Submission(next))
                if bytes == 0 || bytes + next.bytes() <= GROUP_BYTES =>
            {
                bytes += next.bytes();
                group.push(next);
            }
            Some(Waiting::Turn(turn)) if group.is_empty() => return Some(Due::Turn(turn)),
            Some(later @ (Waiting::Submission(_) | Waiting::Turn(_))) => {
                waiting.push_front(later);
                break;
            }
            None => break,
        }
    }
    if group.is_empty() { None } else { Some(Due::Group(group)) }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

/// The right to do a group of submissions, or to take a turn. It ends even if that panics.
struct Lead<'a> {
    queue: &'a WriteQueue,
    submissions: usize,
}

impl Lead<'_> {
    /// Tells everybody who waits for the group, and ends the lead.
    fn finish(self, group: impl IntoIterator<Item = Submission>) {
        // First, so that after a barrier every ticket before it has its outcome.
        for submission in group {
            submission.resolve();
        }
        drop(self);
    }

    /// Ends the lead with nothing done; the group comes before all that wait.
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
            // Whoever waited may have given up.
            let _ = barrier.passed.send(());
        }
    }
}

/// However the writer thread ends, nobody waits for it in vain.
struct Gone<'a>(&'a WriteQueue);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        // Who waits for a turn is told when that is dropped.
        let waiting: Vec<Submission> = mem::take(&mut state.waiting)
            .into_iter()
            .filter_map(|waiting| match waiting {
                Waiting::Submission(submission) => Some(submission),
                Waiting::Turn(_) => None,
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
