//! Executes a case, and checks it after every attempt at a run. An open run is a journaled run that
//! was neither committed nor discarded.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures_util::join;
use tokio::task::yield_now;
use tower_chat::{
    HistoryStore, MemoryStore, Message,
    recovery::{self, OnOpenRun, RunEnd},
    replay::{DanglingCalls, Replay},
    run::RunId,
    store::{Journal, Summaries},
};
use tower_chat_sqlite::{Durability, SqliteStore};
use tower_chat_testkit::{FaultyStore, Injection};

use crate::faults::{
    case::{Caller, Case, Then},
    counters::Counters,
    model, other_arguments, pictures,
    process::{Process, RunRequest, key, request, shows_parts},
    rules::{self, ANSWERED_ALREADY, CLAIMED, require},
    script::{Input, RunScript},
    scripted_model::{Readers, is_valid},
    summarized,
    trace::{Event, Outcome, in_lines, label},
    trace_index::TraceIndex,
    world::{FaultPlan, World},
};

pub(crate) fn failure(case: &Case) -> Option<String> {
    failure_and_counters(case, &Counters::default())
}

pub(crate) fn failure_and_counters(case: &Case, counters: &Counters) -> Option<String> {
    let played = catch_unwind(AssertUnwindSafe(|| play(case)));
    match played {
        Ok((trace, Ok(()))) => {
            counters.count(&trace);
            None
        }
        Ok((trace, Err(failure))) => Some(format!("{failure}\n{}", in_lines(&trace))),
        Err(panic) => {
            let label = panic.downcast_ref::<String>().map(String::as_str);
            let label = label.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("it panicked: {}", label.unwrap_or_default()))
        }
    }
}

/// Executes a case. Returns the trace, and the first failure, if any.
pub(crate) fn play(case: &Case) -> (Vec<Event>, Result<(), String>) {
    let mut case = case.clone();
    // The last run has no faults. It resumes open runs, and stores unsaved messages.
    case.runs.push(RunScript { input: Input::Text, rounds: Vec::new() });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    // One more run, for a branch.
    let world = World::new(case.seed, case.runs.len() + 1);
    let outcome = runtime.block_on(async {
        if case.on_disk {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("chat.db");
            let open = async || {
                let options = SqliteStore::options().with_durability(Durability::Normal);
                options.open(&path).await.expect("the file opens")
            };
            Scenario::begin(&case, &world, open().await).play(open).await
        } else {
            let store = MemoryStore::new();
            let open = async || store.clone();
            Scenario::begin(&case, &world, store.clone()).play(open).await
        }
    });
    (world.trace(), outcome)
}

pub(crate) struct Scenario<'a, S> {
    pub(crate) case: &'a Case,
    pub(crate) world: &'a World,
    pub(crate) readers: Readers,
    pub(crate) process: Process<S>,
}

impl<'a, S: HistoryStore + Clone> Scenario<'a, S> {
    pub(crate) fn begin(case: &'a Case, world: &'a World, store: S) -> Self {
        let readers = readers_of(store.clone(), case);
        let process = Process::new(store, readers.clone(), world, case);
        Self { case, world, readers, process }
    }

    pub(crate) async fn restart(&mut self, open: &impl AsyncFn() -> S, on_open_run: OnOpenRun) {
        self.process.store.die();
        self.world.note(Event::Restarted);
        self.world.begin(FaultPlan::default());
        self.world.advance_an_hour();
        let store = open().await;
        self.readers = readers_of(store.clone(), self.case);
        self.process =
            Process::with(store, self.readers.clone(), self.world, self.case, on_open_run);
    }

    async fn play(mut self, open: impl AsyncFn() -> S) -> Result<(), String> {
        for (run, script) in self.case.runs.iter().enumerate() {
            let request = self.request(run, script.input).await;
            if run == self.case.faulty_run {
                let mut is_done = false;
                let mut branching = self.case.branching.as_ref();
                for attempt in &self.case.attempts {
                    self.world.begin(attempt.fault_plan.clone());
                    let sent = self.process.send(run, request.clone(), attempt.caller);
                    let during = branching.filter(|branching| branching.during);
                    let (outcome, branched) =
                        join!(sent, async { self.branch_during(during?).await });
                    self.complete_delayed().await?;
                    self.check(false).await?;
                    if attempt.restarts || self.world.is_dead() {
                        self.restart(&open, OnOpenRun::Recover).await;
                    }
                    match branching.take() {
                        Some(branching) if branching.during => {
                            self.branch_after(branching, branched).await?;
                        }
                        Some(branching) => self.branch(branching, &open).await?,
                        None => {}
                    }
                    is_done = matches!(outcome, Outcome::Answer { .. });
                    if is_done {
                        break;
                    }
                }
                if !is_done && !self.step_after(run, &open).await? {
                    continue;
                }
                if is_done {
                    continue;
                }
            }
            self.attempt_without_faults(run, request).await?;
        }
        self.check(true).await
    }

    /// Makes an attempt without faults.
    ///
    /// An approval may be visible as pending although an open run, or a run with unsaved messages,
    /// has already answered it. The attempt then fails, and the caller sends a request that answers
    /// only the approvals that are still pending.
    ///
    /// If the write that withdraws the claim of an approved call has failed, the call remains claimed
    /// until the lease of the claim ends. The caller then sends the same request again.
    async fn attempt_without_faults(&self, run: usize, request: RunRequest) -> Result<(), String> {
        self.world.begin(FaultPlan::default());
        let mut outcome = self.process.send(run, request.clone(), Caller::Patient).await;
        self.complete_delayed().await?;
        if matches!(&outcome, Outcome::Error(error) if error.contains(ANSWERED_ALREADY)) {
            self.check(false).await?;
            let request = self.request(run, Input::Text).await;
            outcome = self.process.send(run, request, Caller::Patient).await;
            self.complete_delayed().await?;
        }
        let is_claimed = matches!(&outcome, Outcome::Error(error) if error.contains(CLAIMED));
        let is_fault = |event: &Event| matches!(event, Event::Fault { .. });
        if is_claimed && self.world.trace().iter().any(is_fault) {
            self.check(false).await?;
            self.world.advance_an_hour();
            outcome = self.process.send(run, request, Caller::Patient).await;
            self.complete_delayed().await?;
        }
        require(matches!(outcome, Outcome::Answer { .. }), || {
            format!("run {run} ended with {outcome:?} although no fault was injected")
        })?;
        self.check(false).await
    }

    /// Creates a request for a run that answers the visible pending approvals.
    async fn request(&self, run: usize, input: Input) -> RunRequest {
        let head = self.readers.store.head(&key()).await.expect("no fault is injected");
        let pending: Vec<_> = head.pending_approvals.into_iter().flatten().collect();
        request(self.world, run, input, &pending, self.case)
    }

    /// Executes the step after the run with faults. Returns whether it repeats the request of the
    /// run.
    async fn step_after(&mut self, run: usize, open: &impl AsyncFn() -> S) -> Result<bool, String> {
        let has_open_run =
            self.readers.store.head(&key()).await.expect("no fault is injected").open_run.is_some();
        let end = match self.case.then {
            Then::Retry => return Ok(true),
            Then::Goes => return Ok(false),
            Then::GoesAfterCommit => {
                self.restart(open, OnOpenRun::Commit).await;
                if has_open_run {
                    self.world.note(Event::Closing { run });
                }
                return Ok(false);
            }
            Then::GoesAfterDiscard => {
                self.restart(open, OnOpenRun::Discard).await;
                return Ok(false);
            }
            Then::Commit => RunEnd::Commit,
            Then::Discard => RunEnd::Discard,
        };
        if has_open_run && end == RunEnd::Commit {
            self.world.note(Event::Closing { run });
        }
        let closed = recovery::close(&self.process.store, &key(), end).await;
        match closed {
            Ok(closed) if closed == has_open_run => {}
            other => return Err(format!("closing the open run returned {other:?}")),
        }
        self.check(false).await?;
        Ok(false)
    }

    pub(crate) async fn complete_delayed(&self) -> Result<(), String> {
        if self.world.is_dead() {
            return Ok(());
        }
        self.world.begin(FaultPlan::default());
        for _ in 0..30 {
            yield_now().await;
        }
        let flushed = self.process.store.flush().await;
        flushed.map_err(|error| format!("flush: {error}"))
    }

    pub(crate) async fn check(&self, is_end: bool) -> Result<(), String> {
        if let Some(failure) = self.world.failures().first() {
            return Err(failure.clone());
        }
        let trace = self.world.trace();
        let index = TraceIndex::of(&trace);
        let store = &self.readers.store;
        let history = store.load(&key()).await.expect("no fault is injected");
        rules::check(self.case, &index)?;
        other_arguments::check_messages(self.world, &history.messages, &index)?;
        pictures::check_stored(self.case.pictures, &history.messages)?;
        let expected = model::history(self.case.mode, &index, self.case.runs.len())?;
        let seen = turns(self.world, history.messages.iter())?;
        require(seen == expected, || format!("readers see {seen:#?}, not {expected:#?}"))?;
        let mut replay = Replay::new(DanglingCalls::Drop);
        replay.push_from(&history.messages, 0);
        is_valid(&replay.view()).map_err(|invalid| format!("the replay is invalid: {invalid}"))?;
        let summaries = store.history_summaries(&key()).await.expect("no fault is injected");
        summarized::check_stored(&summaries, &history, &trace)?;
        let open = store.open_run(&key()).await.expect("no fault is injected");
        match open {
            None => {}
            Some(_) if is_end => return Err("a run is open at the end".to_owned()),
            Some(open) => {
                let run = self.world.run_of(open.open.run);
                let staged: Vec<String> =
                    open.messages.iter().map(|message| label(message)).collect();
                other_arguments::check_messages(self.world, &open.messages, &index)?;
                pictures::check_stored(self.case.pictures, &open.messages)?;
                let expected = model::open_run(run, &index)?;
                require(staged == expected, || {
                    format!("staged is {staged:#?}, not {expected:#?}")
                })?;
                self.check_report(&index).await?;
            }
        }
        if is_end {
            let unsaved = self.process.store.handle().unsaved_conversations();
            require(unsaved.is_empty(), || "the outbox still contains messages".to_owned())?;
            self.everything_paid_is_there(&index)?;
        }
        Ok(())
    }

    async fn check_report(&self, index: &TraceIndex<'_>) -> Result<(), String> {
        use recovery::CallState::{Done, Failed, NeverStarted, Unknown};
        let report = recovery::open_run(&*self.readers.store, &key()).await;
        let Some(report) = report.expect("no fault is injected") else {
            return Err("the open run is not reported".to_owned());
        };
        for call in report.calls {
            let ran = index.trace.iter().any(
                |event| matches!(event, Event::Started { call: id, .. } if *id == call.call_id),
            );
            let has_result = !index.results_of(&call.call_id).is_empty();
            let is_begun = index.is_started_on_disk(&call.call_id, usize::MAX);
            let right = match call.state {
                Done | Failed => has_result,
                Unknown => is_begun && !has_result,
                NeverStarted => !ran && !is_begun,
            };
            require(right, || format!("{call:?} is reported; it ran: {ran}"))?;
        }
        Ok(())
    }

    /// Checks that every answer of the model is stored, unless the case allows a loss.
    fn everything_paid_is_there(&self, index: &TraceIndex<'_>) -> Result<(), String> {
        if !shows_parts(self.case.mode) || self.case.fail_call {
            return Ok(());
        }
        for (serial, answer) in &index.answers {
            let survives =
                !index.trace[answer.at..].iter().any(|event| matches!(event, Event::Restarted));
            let is_stored = index.is_stored(&index.answer_label(*serial));
            require(is_stored || !survives, || format!("answer {serial} was never stored"))?;
        }
        Ok(())
    }
}

pub(crate) fn readers_of<S: HistoryStore + Clone>(store: S, case: &Case) -> Readers {
    let store = Arc::new(FaultyStore::with_injector(store, |_| Injection::none()));
    Readers { store, all_or_nothing: !shows_parts(case.mode) }
}

/// Groups the visible messages by their runs. Fails if messages of two runs are mixed, or a message
/// occurs twice.
pub(crate) fn turns<'a>(
    world: &World,
    messages: impl Iterator<Item = &'a Arc<Message>>,
) -> Result<Vec<model::Turn>, String> {
    let mut turns: Vec<(RunId, model::Turn)> = Vec::new();
    let mut last = None;
    for message in messages {
        let id = message.id.ok_or("a message has no id")?;
        if turns.last().is_none_or(|(run, _)| *run != id.run) {
            if turns.iter().any(|(run, _)| *run == id.run) {
                return Err(format!("run {} is interrupted by another", world.run_of(id.run)));
            }
            turns.push((id.run, model::Turn { run: world.run_of(id.run), labels: Vec::new() }));
            last = None;
        }
        if last.is_some_and(|last| last >= id.index) {
            return Err(format!("message {id} is stored twice or out of order"));
        }
        last = Some(id.index);
        if let Some((_, turn)) = turns.last_mut() {
            turn.labels.push(label(message));
        }
    }
    Ok(turns.into_iter().map(|(_, turn)| turn).collect())
}
