//! The environment of one case: its faults, and the trace of its events.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use tower_chat::{
    run::{Clock, RunId},
    store::{StoreError, author::Write},
};
use tower_chat_testkit::{FaultInjector, Injection, Operation, Rng, StoreFault};

use crate::faults::trace::{Event, closed, labels};

#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

struct State {
    trace: Vec<Event>,
    file: Option<File>,
    runs: Vec<RunId>,
    fault_plan: FaultPlan,
    steps: u64,
    is_dead: bool,
    milliseconds: u64,
    first_serial: u32,
    failures: Vec<String>,
    executions: HashMap<String, u32>,
}

/// The faults during one attempt at a run. Each operation of the store, the model or a tool is a
/// step of the attempt. Steps are numbered from 1.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FaultPlan {
    /// The steps with faults, each with a number that determines the fault.
    pub(crate) faults: Vec<(u64, u64)>,
    /// The step at which the process dies.
    pub(crate) kill_at: Option<u64>,
    /// Whether the operating system process aborts. Otherwise, its death is simulated.
    pub(crate) aborts: bool,
    /// The seed of the delays. 0 means no delays.
    pub(crate) delays: u64,
}

pub(crate) enum Step {
    Fine,
    Wrong(Rng),
    /// The process is dead.
    Dead,
}

impl World {
    pub(crate) fn new(seed: u64, runs: usize) -> Self {
        let run = |run: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&0x0193_0000_0000_7000_u64.to_be_bytes());
            bytes[5] = u8::try_from(run).expect("few runs");
            bytes[8..].copy_from_slice(&(Rng::of(seed, run as u64).next()).to_be_bytes());
            bytes[8] = 0x80;
            RunId::from_bytes(bytes)
        };
        Self(Arc::new(Mutex::new(State {
            trace: Vec::new(),
            file: None,
            runs: (0..runs).map(run).collect(),
            fault_plan: FaultPlan::default(),
            steps: 0,
            is_dead: false,
            milliseconds: 0,
            first_serial: 0,
            failures: Vec::new(),
            executions: HashMap::new(),
        })))
    }

    /// Reads the events that earlier processes have written to a file, and appends new events to
    /// it. Service calls are numbered from `first_serial`, which must differ between concurrent
    /// processes.
    pub(crate) fn of_file(seed: u64, runs: usize, path: &Path, first_serial: u32) -> Self {
        let world = Self::new(seed, runs);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        {
            let mut state = world.state();
            state.trace =
                text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
            let started: Vec<String> = state
                .trace
                .iter()
                .filter_map(|event| match event {
                    Event::Started { call, .. } => Some(call.clone()),
                    _ => None,
                })
                .collect();
            state.first_serial = first_serial;
            let restarts = state.trace.iter().filter(|event| **event == Event::Restarted).count();
            state.milliseconds = 3_600_000 * restarts as u64;
            for call in started {
                *state.executions.entry(call).or_default() += 1;
            }
            let file = OpenOptions::new().create(true).append(true).open(path);
            state.file = Some(file.expect("a file"));
        }
        world
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics here")
    }

    pub(crate) fn note(&self, event: Event) {
        let mut state = self.state();
        if let Some(file) = &mut state.file {
            let mut line = serde_json::to_vec(&event).expect("JSON");
            line.push(b'\n');
            file.write_all(&line).expect("the disk has room");
        }
        state.trace.push(event);
    }

    pub(crate) fn trace(&self) -> Vec<Event> {
        self.state().trace.clone()
    }

    pub(crate) fn add_failure(&self, failure: impl Into<String>) {
        self.state().failures.push(failure.into());
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.state().failures.clone()
    }

    pub(crate) fn run_id(&self, run: usize) -> RunId {
        self.state().runs[run]
    }

    pub(crate) fn run_of(&self, id: RunId) -> usize {
        self.state().runs.iter().position(|run| *run == id).expect("a run of the case")
    }

    pub(crate) fn next_serial(&self) -> u32 {
        let asked = |event: &&Event| matches!(event, Event::Asked { .. });
        let state = self.state();
        let count = state.trace.iter().filter(asked).count();
        state.first_serial + u32::try_from(count).expect("few")
    }

    pub(crate) fn next_execution(&self, call: &str) -> String {
        let mut state = self.state();
        let count = state.executions.entry(call.to_owned()).or_default();
        *count += 1;
        format!("{call}#{count}")
    }

    /// Sets the faults of the next attempt.
    pub(crate) fn begin(&self, fault_plan: FaultPlan) {
        let mut state = self.state();
        state.fault_plan = fault_plan;
        state.steps = 0;
        state.is_dead = false;
    }

    pub(crate) fn advance_an_hour(&self) {
        self.state().milliseconds += 3_600_000;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock_ahead(Duration::ZERO)
    }

    pub(crate) fn clock_ahead(&self, by: Duration) -> Clock {
        let world = self.clone();
        Clock::new(move || {
            let mut state = world.state();
            state.milliseconds += 1;
            let milliseconds = 1_700_000_000_000 + state.milliseconds;
            SystemTime::UNIX_EPOCH + by + Duration::from_millis(milliseconds)
        })
    }

    /// Counts a step. Returns whether the process is still alive.
    pub(crate) fn pass(&self) -> bool {
        let mut state = self.state();
        state.steps += 1;
        if state.fault_plan.kill_at == Some(state.steps) {
            if state.fault_plan.aborts {
                std::process::abort();
            }
            state.is_dead = true;
        }
        !state.is_dead
    }

    /// Counts a step, and returns how it behaves.
    pub(crate) fn step(&self, what: &str) -> Step {
        if !self.pass() {
            return Step::Dead;
        }
        let state = self.state();
        let step = state.steps;
        let fault = state.fault_plan.faults.iter().find(|(at, _)| *at == step);
        let Some((_, how)) = fault.copied() else { return Step::Fine };
        drop(state);
        self.note(Event::Fault { what: what.to_owned() });
        Step::Wrong(Rng::of(how, step))
    }

    pub(crate) fn delay(&self) -> usize {
        let state = self.state();
        if state.fault_plan.delays == 0 {
            return 0;
        }
        let mut rng = Rng::of(state.fault_plan.delays, state.steps);
        if rng.one_in(3) { 1 + rng.below(4) } else { 0 }
    }
}

impl FaultInjector for World {
    fn before(&self, operation: Operation) -> Injection {
        let injection = Injection::none().delayed(self.delay(), self.delay() / 2);
        let broken = || StoreError::backend("be of use", true, "chaos");
        match self.step(&format!("{operation:?}")) {
            Step::Fine => injection,
            Step::Dead => injection.with(StoreFault::Never),
            Step::Wrong(mut rng) => injection.with(match rng.below(4) {
                0 | 1 => StoreFault::Before(broken()),
                2 => StoreFault::Midway(1, broken()),
                _ => StoreFault::After(broken()),
            }),
        }
    }

    fn submitted(&self, writes: &[Write]) {
        if self.is_dead() {
            return;
        }
        let Some(run) = writes.last().map(|write| self.run_of(write.run())) else { return };
        self.note(Event::Submitted { run, labels: writes.iter().flat_map(labels).collect() });
    }

    fn stored(&self, write: &Write) {
        let run = self.run_of(write.run());
        self.note(Event::Stored { run, labels: labels(write), close: closed(write) });
    }

    fn after(&self, _: Operation) {
        self.pass();
    }
}
