//! A log that counts its appends and fails on command, and tests with such failures.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tower_chat::{MemoryStore, PersistenceMode};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, Erase, MemoryUpdateLog, Renewed, RunEnd, RunKey, RunState,
    StoredUpdate, UpdateLog, UpdateLogError, UpdateLogOptions, UpdatePage, UpdatePosition,
    contract::ManualClock,
};
use tower_chat_testkit::Step;

use crate::support::{Server, deltas, request, rest, sketch, timed_log};

/// The failure of an append.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The log stores nothing, and returns a retryable error.
    NotStored,
    /// The log stores the updates, but returns a retryable error.
    StoredUnknown,
    /// The log stores nothing, and returns an error that is not retryable.
    Permanent,
}

/// A log that fails on command. Clones share one log.
#[derive(Debug, Clone)]
pub(crate) struct FaultyLog(Arc<State>);

#[derive(Debug)]
struct State {
    log: MemoryUpdateLog,
    appends: AtomicUsize,
    faults: Mutex<Vec<Fault>>,
    is_down: AtomicBool,
    /// The clock that each read of updates advances, and the time by which it is advanced.
    slow_reads: Mutex<Option<(ManualClock, Duration)>>,
}

impl FaultyLog {
    pub(crate) fn new(log: MemoryUpdateLog, faults: &[Fault]) -> Self {
        let faults = Mutex::new(faults.iter().rev().copied().collect());
        let (appends, is_down) = (AtomicUsize::new(0), AtomicBool::new(false));
        let slow_reads = Mutex::default();
        Self(Arc::new(State { log, appends, faults, is_down, slow_reads }))
    }

    pub(crate) fn appends(&self) -> usize {
        self.0.appends.load(Ordering::Relaxed)
    }

    /// Makes each read of updates take the given time, by advancing the clock.
    pub(crate) fn set_slow_reads(&self, clock: ManualClock, time: Duration) {
        *self.0.slow_reads.lock().unwrap() = Some((clock, time));
    }

    fn set_down(&self) {
        self.0.is_down.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), UpdateLogError> {
        match self.0.is_down.load(Ordering::Relaxed) {
            true => Err(UpdateLogError::backend("connect", true, "refused")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl UpdateLog for FaultyLog {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        self.check()?;
        self.0.log.begin(run, attempt, lease).await
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        self.check()?;
        self.0.appends.fetch_add(1, Ordering::Relaxed);
        let fault = self.0.faults.lock().unwrap().pop();
        match fault {
            None => self.0.log.append(run, first, updates, end).await,
            Some(Fault::NotStored) => Err(UpdateLogError::backend("append", true, "fault")),
            Some(Fault::Permanent) => Err(UpdateLogError::backend("append", false, "fault")),
            Some(Fault::StoredUnknown) => {
                self.0.log.append(run, first, updates, end).await?;
                Err(UpdateLogError::backend("append", true, "fault"))
            }
        }
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        self.check()?;
        self.0.log.renew(run, attempt, lease).await
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        self.check()?;
        if limit > 0
            && let Some((clock, time)) = &*self.0.slow_reads.lock().unwrap()
        {
            clock.advance(*time);
        }
        self.0.log.read(run, after, limit).await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        self.check()?;
        self.0.log.interrupt(run).await
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        self.check()?;
        self.0.log.request_stop(run).await
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        self.check()?;
        self.0.log.erase(what).await
    }
}

const ANSWER: [&str; 5] = ["Take ", "a coat.", "message: Take a coat.", "finish", "completed"];

fn server(log: &FaultyLog) -> Server {
    let step = Step::updates(deltas(&["Take ", "a coat."]));
    let runs = DetachedRunsLayer::new(log.clone());
    Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall)
}

#[tokio::test(start_paused = true)]
async fn an_append_that_fails_is_repeated() {
    use Fault::{NotStored, StoredUnknown};
    for faults in [&[NotStored; 3][..], &[StoredUnknown, NotStored, StoredUnknown]] {
        let log = FaultyLog::new(MemoryUpdateLog::new(), faults);
        let server = server(&log);
        let (request, run) = request();
        let response = server.call(request).await.unwrap();
        assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
        server.runs.drained().await;
        assert_eq!(sketch(&server.events(&run, UpdatePosition::START).await), ANSWER);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_in_the_same_process_receive_updates_although_the_log_refuses_them() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[Fault::Permanent]);
    let gate = tower_chat_testkit::Gate::closed();
    let step = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
    let runs = DetachedRunsLayer::new(log.clone());
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    let reader = server.attach(&run, UpdatePosition::START).await;
    gate.open();
    assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
    assert_eq!(sketch(&rest(reader).await), ANSWER);
    server.runs.drained().await;
    // The log has refused all updates.
    assert_eq!(sketch(&server.events(&run, UpdatePosition::START).await), ["truncated"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_exceeds_a_limit_of_the_log_has_an_end_in_the_log() {
    let options = UpdateLogOptions::default().with_max_updates_per_run(2);
    let log = MemoryUpdateLog::with_options(options);
    let gate = tower_chat_testkit::Gate::closed();
    let step = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
    let (store, mode) = (MemoryStore::new(), PersistenceMode::PerServiceCall);
    let server = Server::new([step], DetachedRunsLayer::new(log.clone()), store.clone(), mode);
    let other = Server::new([], DetachedRunsLayer::new(log.clone()), store, mode);
    let (request, run) = request();
    let response = server.call(request.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let joined = other.call(request.clone()).await.unwrap();
    let reader = other.attach(&run, UpdatePosition::START).await;
    gate.open();
    assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
    server.runs.drained().await;
    assert_eq!(sketch(&rest(reader).await), ["Take ", "truncated"]);
    let error = joined.collect().await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::Truncated { .. })), "{error:?}");
    assert_eq!(tower_chat::error::is_retryable(&*error), Some(true));
    let closed = RunState::Closed { attempt: 1, end: RunEnd::Truncated };
    assert_eq!(other.runs.state(&run).await.unwrap(), closed);
    // A repetition of the request returns the stored answer.
    let again = other.call(request).await.unwrap();
    assert_eq!(again.collect().await.unwrap().text(), "Take a coat.");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_updates_are_refused_keeps_its_lease() {
    let (memory, clock) = timed_log();
    let log = FaultyLog::new(memory, &[Fault::Permanent]);
    let step = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let runs = DetachedRunsLayer::new(log.clone());
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        clock.advance(Duration::from_secs(5));
    }
    let other = DetachedRunsLayer::new(log);
    let open = RunState::Open { attempt: 1, stop_requested: true };
    assert_eq!(other.stop(&run).await.unwrap(), open);
    assert_eq!(response.collect().await.unwrap().text(), "Take ");
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_may_be_repeated_immediately() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[]);
    let failure = Step::error(tower_chat::error::Retryability::Retryable);
    let steps = [failure, Step::text("Take a coat.").whole()];
    let runs = DetachedRunsLayer::new(log);
    let server = Server::new(steps, runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, _) = request();
    server.call(request.clone()).await.unwrap_err();
    let response = server.call(request).await.unwrap();
    assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_cannot_read_the_earlier_updates_is_closed_as_failed() {
    let log = MemoryUpdateLog::new();
    let (request, run) = request();
    log.begin(&run, 1, Duration::from_secs(15)).await.unwrap();
    let damaged = [StoredUpdate::new("not an update")];
    let interrupted = Some(&RunEnd::Interrupted);
    log.append(&run, UpdatePosition::new(1, 0), &damaged, interrupted).await.unwrap();
    let server = server(&FaultyLog::new(log, &[]));
    server.call(request).await.unwrap_err();
    let state = server.runs.state(&run).await.unwrap();
    let RunState::Closed { attempt: 2, end: RunEnd::Failed { .. } } = state else {
        panic!("{state:?}")
    };
}

#[tokio::test(start_paused = true)]
async fn a_run_completes_if_its_log_becomes_unavailable_and_the_next_run_does_not_begin() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[]);
    let step = Step::updates(deltas(&["Take ", "a coat."]));
    let gate = tower_chat_testkit::Gate::closed();
    let runs = DetachedRunsLayer::new(log.clone());
    let step = step.waits_after(1, &gate);
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (first, _) = request();
    let response = server.call(first).await.unwrap();
    log.set_down();
    gate.open();
    assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
    server.runs.drained().await;
    // If the log fails, the run does not begin. Otherwise the service would be paid for an answer
    // that readers cannot follow.
    let (second, _) = request();
    let error = server.call(second).await.unwrap_err();
    assert_eq!(tower_chat::error::is_retryable(&*error), None);
    assert_eq!(server.runs.in_progress(), 0);
}
