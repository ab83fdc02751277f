//! One generated history: a run that is executed in two processes, and some clients.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};
use tower_chat::{
    ChatRequest, ChatUpdate, Finish, HistoryStore, MemoryStore, Message, PersistenceMode, ToolCall,
};
use tower_chat_delivery::{
    DetachedRunsLayer, RunEnd, RunKey, RunReader, RunState, UpdateLog, UpdatePosition,
    contract::ManualClock,
};
use tower_chat_testkit::{FaultyStore, Rng, ScriptedModel, Step};

use super::client::{Client, stored_answers};
use crate::support::{Server, request};

const LEASE: Duration = Duration::from_secs(15);
const CLIENTS: usize = 3;

pub(crate) struct Case {
    rng: Rng,
    log: Arc<dyn UpdateLog>,
    clock: ManualClock,
    store: MemoryStore,
    mode: PersistenceMode,
    is_durable: bool,
    model: ScriptedModel,
    request: ChatRequest,
    run: RunKey,
    processes: Vec<Process>,
    clients: Vec<Client>,
    /// The number of leases that have expired although the process was not killed.
    lost_leases: usize,
}

/// A simulated process: a runtime, a stack, and a reader for each connected client.
struct Process {
    connections: BTreeMap<usize, RunReader>,
    server: Server,
    runtime: Runtime,
}

impl Case {
    pub(crate) fn new(seed: u64, number: u64, log: Arc<dyn UpdateLog>, clock: ManualClock) -> Self {
        let mut rng = Rng::of(seed, number);
        let modes =
            [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];
        let mode = *rng.one_of(&modes).unwrap();
        let (request, run) = request();
        let mut case = Self {
            model: model(&mut rng),
            is_durable: rng.one_in(3),
            rng,
            log,
            clock,
            store: MemoryStore::new(),
            mode,
            request,
            run,
            processes: Vec::new(),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            lost_leases: 0,
        };
        case.processes = vec![case.start(), case.start()];
        case
    }

    fn start(&self) -> Process {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let runs = DetachedRunsLayer::new(self.log.clone()).with_lease(LEASE);
        let runs = if self.is_durable { runs.durable_delivery() } else { runs };
        let (model, store) = (self.model.clone(), self.store.clone());
        let server = match self.mode {
            // Journaled runs have no lease in the history, because that lease would use another
            // clock than the log.
            PersistenceMode::Journaled => Server::over(model, runs, store, self.mode),
            _ => {
                let store = FaultyStore::new(store).shared_by_processes();
                Server::over(model, runs, store, self.mode)
            }
        };
        Process { connections: BTreeMap::new(), server, runtime }
    }

    pub(crate) fn run(mut self) -> Result<(), String> {
        self.send(0);
        let mut kills = 0;
        for _ in 0..40 {
            let process = self.rng.below(2);
            match self.rng.below(20) {
                0..4 => self.connect(process),
                4..7 => self.disconnect(process),
                7..13 => self.read(process)?,
                13..16 => self.pass_time(process),
                16 if self.rng.one_in(3) => self.stop(process),
                17..19 if kills < 3 => {
                    kills += 1;
                    self.kill(process);
                }
                19 if self.lost_leases < 2 && self.mode != PersistenceMode::Journaled => {
                    self.lost_leases += 1;
                    self.clock.advance(LEASE);
                }
                _ => self.resume(process),
            }
        }
        self.complete()?;
        self.check()
    }

    /// Sends the request, and drops the response when the service has responded.
    fn send(&mut self, process: usize) {
        let Process { server, runtime, .. } = &self.processes[process];
        let call = server.call(self.request.clone());
        // If the service does not respond within this time, the client disconnects before the
        // response.
        let timeout_of_call = Duration::from_millis(50);
        runtime.block_on(async { drop(timeout(timeout_of_call, call).await) });
    }

    fn connect(&mut self, process: usize) {
        let index = self.rng.below(CLIENTS);
        let client = &self.clients[index];
        let is_connected = self.processes.iter().any(|it| it.connections.contains_key(&index));
        if is_connected || client.end == Some(RunEnd::Completed) {
            return;
        }
        let after = client.after.unwrap_or(UpdatePosition::START);
        self.clients[index].end = None;
        let Process { server, runtime, connections } = &mut self.processes[process];
        let reader = runtime.block_on(server.attach(&self.run, after));
        connections.insert(index, reader);
    }

    fn disconnect(&mut self, process: usize) {
        let index = self.rng.below(CLIENTS);
        self.processes[process].connections.remove(&index);
    }

    /// Lets a random client read some events, if this client is connected to the process.
    fn read(&mut self, process: usize) -> Result<(), String> {
        let index = self.rng.below(CLIENTS);
        let count = 1 + self.rng.below(30);
        let Process { runtime, connections, .. } = &mut self.processes[process];
        let Some(reader) = connections.get_mut(&index) else { return Ok(()) };
        for _ in 0..count {
            let next = runtime
                .block_on(async { timeout(Duration::from_millis(300), reader.next()).await.ok() });
            match next {
                Some(Some(event)) => {
                    self.clients[index].receive(event.map_err(|error| error.to_string())?)?;
                }
                Some(None) => {
                    connections.remove(&index);
                    break;
                }
                None => break,
            }
        }
        Ok(())
    }

    fn pass_time(&mut self, process: usize) {
        let time = Duration::from_millis(self.rng.below(2500) as u64);
        self.processes[process].runtime.block_on(async { sleep(time).await });
    }

    fn stop(&mut self, process: usize) {
        let Process { server, runtime, .. } = &self.processes[process];
        runtime.block_on(server.runs.stop(&self.run)).unwrap();
    }

    /// Replaces a process with a new one. If it executed a run, advances the clock past the lease.
    fn kill(&mut self, process: usize) {
        let started = self.start();
        let killed = std::mem::replace(&mut self.processes[process], started);
        let is_executing = killed.server.runs.in_progress() > 0;
        // Dropping the runtime waits for the log operations on its threads. These operations may
        // set a lease, and must therefore end before the clock is advanced.
        drop(killed);
        if is_executing {
            self.clock.advance(LEASE);
        }
    }

    fn state(&self) -> RunState {
        let Process { server, runtime, .. } = &self.processes[0];
        runtime.block_on(server.runs.state(&self.run)).unwrap()
    }

    /// Sends the request again, unless a process is executing the run.
    fn resume(&mut self, process: usize) {
        let sends = match self.state() {
            RunState::Open { .. } => false,
            RunState::Closed { end: RunEnd::Completed, .. } => self.rng.one_in(4),
            _ => true,
        };
        if sends {
            self.send(process);
        }
    }

    /// Repeats the request until the run has ended, and lets all clients read to the end.
    fn complete(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            match self.state() {
                RunState::Closed { end: RunEnd::Completed, .. } => break,
                // The attempt may fail because an earlier attempt is still in progress, or has
                // written first. The next attempt then returns the stored answer.
                RunState::Closed { attempt, end: RunEnd::Failed { message } }
                    if attempt == 1 || self.lost_leases == 0 =>
                {
                    return Err(message);
                }
                RunState::Open { .. } => self.stop(0),
                _ => self.send(0),
            }
            for process in 0..2 {
                self.processes[process].runtime.block_on(async { sleep(LEASE / 2).await });
            }
        }
        let state = self.state();
        if !matches!(state, RunState::Closed { end: RunEnd::Completed, .. }) {
            return Err(format!("the run does not end: {state}"));
        }
        for process in &mut self.processes {
            process.connections.clear();
        }
        for (index, client) in self.clients.iter_mut().enumerate() {
            if client.end == Some(RunEnd::Completed) {
                continue;
            }
            let Process { server, runtime, .. } = &self.processes[index % 2];
            // If an attempt of this process has failed, and the process has not handled its end yet, the
            // client first receives this end, and attaches again.
            for _ in 0..3 {
                if client.end == Some(RunEnd::Completed) {
                    break;
                }
                let after = client.after.unwrap_or(UpdatePosition::START);
                runtime.block_on(async {
                    let mut reader = server.attach(&self.run, after).await;
                    while let Some(event) = reader.next().await {
                        client.receive(event.map_err(|error| error.to_string())?)?;
                    }
                    Ok::<(), String>(())
                })?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let runtime = &self.processes[0].runtime;
        let history = runtime.block_on(self.store.load(&self.run.conversation)).unwrap();
        let stored = stored_answers(&history.messages);
        for client in &self.clients {
            client.check(&stored, self.mode)?;
        }
        for Process { server, runtime, .. } in &self.processes {
            // The clock of a runtime advances only while the runtime is idle.
            let drained = async { timeout(LEASE, server.runs.drained()).await };
            runtime.block_on(drained).map_err(|_| "a run is in progress")?;
        }
        Ok(())
    }
}

/// Returns a model that calls a tool or answers, and sometimes pauses in an answer.
fn model(rng: &mut Rng) -> ScriptedModel {
    let steps = (0..60).map(|round| {
        if rng.one_in(3) {
            let call = ToolCall::new(format!("c{round}"), "lookup", "{}");
            return Step::message(Message::tool_calls([call]));
        }
        let size = *rng.one_of(&[3, 40, 6000]).unwrap();
        let count = 1 + rng.below(40);
        let deltas = (0..count).map(|index| ChatUpdate::TextDelta(format!("{index:>size$} ")));
        let finish = ChatUpdate::Finish(Finish::stop().into());
        let step = Step::updates(deltas.chain([finish]));
        if rng.one_in(2) { step.hangs_after(rng.below(count)) } else { step }
    });
    ScriptedModel::new(steps.collect::<Vec<_>>())
}
