//! The clients of one process, and the handle of the second process.

use std::{
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use tokio::{runtime::Runtime, task::JoinSet};
use tower_chat_testkit::Rng;

use super::{
    client::{Client, read_all},
    event::Event,
    operations::Operations,
    plant::Plant,
    recorder::Recorder,
    stores::{DynStore, StoreKind},
};
use crate::Failure;

/// The clients of the campaign `histories` in the second process
#[derive(Debug, Clone, clap::Args)]
pub struct ClientArguments {
    /// The store
    #[arg(long, value_enum)]
    pub store: StoreKind,
    /// The address of the store
    #[arg(long)]
    pub address: String,
    /// The seed of the operations of the clients
    #[arg(long)]
    pub seed: u64,
    /// The number of clients
    #[arg(long)]
    pub clients: u64,
    /// The number of operations of each client
    #[arg(long)]
    pub operations: usize,
    /// The planted fault
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
}

pub(super) struct Clients {
    runtime: Runtime,
    store: DynStore,
    recorder: Recorder,
    settings: ClientArguments,
}

/// The first process's handle of the second process.
pub(super) struct OtherProcess {
    process: Child,
    commands: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Clients {
    /// Opens the store for the clients of process 0 or 1.
    pub(super) fn open(settings: &ClientArguments, process: u64) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(Failure::cannot_run)?;
        let opened = settings.store.open(&settings.address, settings.plant);
        let store = runtime.block_on(opened)?;
        Ok(Self { runtime, store, recorder: Recorder::new(process), settings: settings.clone() })
    }

    pub(super) fn play(&self, case: u64) -> Result<Vec<Event>, Failure> {
        let ended = self.runtime.block_on(async {
            let mut clients = JoinSet::new();
            for client in 0..self.settings.clients {
                let number = client * 2 + self.recorder.process();
                let rng = Rng::of(self.settings.seed.rotate_left(16) ^ number, case);
                let name = format!("{}.{client}", self.recorder.process());
                let client = Client::new(self.operations(case, client), rng, name);
                clients.spawn(client.run(self.settings.operations));
            }
            while let Some(ended) = clients.join_next().await {
                ended.map_err(|error| Failure::cannot_run(format!("a client failed: {error}")))?;
            }
            let flushed = self.store.flush().await;
            flushed.map_err(|error| Failure::cannot_run(format!("flush the store: {error}")))
        });
        ended.map(|()| self.recorder.take())
    }

    pub(super) fn read(&self, case: u64) -> Result<Vec<Event>, Failure> {
        let operations = self.operations(case, self.settings.clients);
        self.runtime.block_on(read_all(&operations));
        Ok(self.recorder.take())
    }

    fn operations(&self, case: u64, client: u64) -> Operations {
        let scope = format!("history {case}");
        Operations::new(self.store.clone(), self.recorder.clone(), &scope, client)
    }
}

/// Executes the commands of the first process, until it closes standard input.
///
/// # Errors
///
/// [`Failure::CannotRun`] if the store cannot be opened or a command cannot be read.
pub fn serve(arguments: ClientArguments) -> Result<(), Failure> {
    let clients = Clients::open(&arguments, 1)?;
    let mut lines = std::io::stdout().lock();
    for order in std::io::stdin().lock().lines() {
        let order = order.map_err(Failure::cannot_run)?;
        let unknown = || Failure::cannot_run(format!("unknown order: {order}"));
        let (what, case) = order.split_once(' ').ok_or_else(unknown)?;
        let case = case.parse().map_err(|_| unknown())?;
        let events = match what {
            "play" => clients.play(case)?,
            "read" => clients.read(case)?,
            _ => return Err(unknown()),
        };
        for event in &events {
            let line = serde_json::to_string(event).map_err(Failure::cannot_run)?;
            writeln!(lines, "{line}").map_err(Failure::cannot_run)?;
        }
        writeln!(lines).and_then(|()| lines.flush()).map_err(Failure::cannot_run)?;
    }
    Ok(())
}

impl OtherProcess {
    pub(super) fn start(
        program: Option<&Path>,
        settings: &ClientArguments,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::cannot_run(format!("start the second process: {error}"));
        let program = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe().map_err(failed)?,
        };
        let mut command = Command::new(program);
        command.arg("histories-client").args(["--store", settings.store.name()]);
        command.args(["--address", &settings.address]);
        command.args(["--seed", &settings.seed.to_string()]);
        command.args(["--clients", &settings.clients.to_string()]);
        command.args(["--operations", &settings.operations.to_string()]);
        if let Some(plant) = settings.plant {
            command.args(["--plant", plant.name()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        let (commands, lines) = (process.stdin.take(), process.stdout.take());
        let (Some(commands), Some(lines)) = (commands, lines) else {
            return Err(Failure::cannot_run("the second process has no pipes"));
        };
        Ok(Self { process, commands, lines: BufReader::new(lines) })
    }

    pub(super) fn order(&mut self, what: &str, case: u64) -> Result<(), Failure> {
        let sent = writeln!(self.commands, "{what} {case}").and_then(|()| self.commands.flush());
        sent.map_err(|error| Failure::cannot_run(format!("the second process has ended: {error}")))
    }

    pub(super) fn events(&mut self) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).map_err(Failure::cannot_run)?;
            if read == 0 {
                return Err(Failure::cannot_run("the second process has ended"));
            }
            match line.trim() {
                "" => return Ok(events),
                event => events.push(serde_json::from_str(event).map_err(Failure::cannot_run)?),
            }
        }
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
