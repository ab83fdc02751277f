//! Records the operations of one process.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use rustix::time::{ClockId, clock_gettime};

use super::event::{Event, Request, Response};

/// The events of this process. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Recorder(Arc<Recorded>);

#[derive(Debug)]
struct Recorded {
    process: u64,
    operations: AtomicU64,
    events: Mutex<Vec<Event>>,
}

#[derive(Debug)]
pub(super) struct Begun {
    recorder: Recorder,
    operation: u64,
}

impl Recorder {
    pub(super) fn new(process: u64) -> Self {
        let (operations, events) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Recorded { process, operations, events }))
    }

    pub(super) fn process(&self) -> u64 {
        self.0.process
    }

    pub(super) fn invoke(&self, client: u64, request: Request) -> Begun {
        // Operations have even numbers in one process and odd numbers in the other.
        let operation = self.0.operations.fetch_add(1, Ordering::Relaxed) * 2 + self.0.process;
        let client = format!("{}.{client}", self.0.process);
        self.push(|at| Event::Invoke { at, operation, client, request });
        Begun { recorder: self.clone(), operation }
    }

    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, event: impl FnOnce(u64) -> Event) {
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event(now()));
    }
}

impl Begun {
    /// Records the answer. An operation that is dropped before has no answer.
    pub(super) fn end(self, response: Response) {
        let operation = self.operation;
        self.recorder.push(|at| Event::Return { at, operation, response });
    }
}

/// Returns the time of the machine's monotonic clock, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds * 1_000_000_000 + nanoseconds
}
