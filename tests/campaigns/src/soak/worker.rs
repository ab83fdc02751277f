//! One of the two processes. It executes commands, and reports every event of a run before the
//! event has an effect on the store.

use std::{io::Write as _, path::Path, sync::Arc};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::RwLock,
};
use tower_chat::{
    HistoryStore, Message, ToolCall,
    message::MessageId,
    store::{Keep, Maintenance, Revision, StoreError, author::Write},
};
use tower_chat_sqlite::Backup;

use super::{
    StoreKind,
    metrics::Recorded,
    protocol::{Command, Report},
    store::{Location, OpenStore},
};
use crate::{
    Failure, Figures,
    conversations::{Job, Outcome, Reporter, Stack, TurnEvent, chain, key, text},
};

/// One of the two processes of the campaign `soak`
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerArguments {
    /// The prefix of the tokens of this process
    #[arg(long)]
    prefix: String,
    /// The seed of the plans of the runs
    #[arg(long)]
    seed: u64,
    /// The kind of the store
    #[arg(long, value_enum)]
    store: StoreKind,
    /// The address of the store
    #[arg(long)]
    address: String,
}

#[derive(Clone)]
struct Worker {
    stack: Stack,
    location: Location,
    store: Arc<RwLock<OpenStore>>,
    recorded: Recorded,
}

/// Executes commands until the command to quit, or until standard input is closed.
pub(super) async fn work(arguments: WorkerArguments) -> Result<Figures, Failure> {
    abort_on_panic();
    let recorded = Recorded::default();
    metrics::set_global_recorder(recorded.clone())
        .map_err(|error| Failure::cannot_run(error.to_string()))?;
    let reporter = Reporter::new(|turn, event| {
        send(&match event {
            Ok(event) => Report::Happened { turn, event },
            Err(what) => Report::Wrong { turn, what },
        });
    });
    let location = Location { kind: arguments.store, address: arguments.address };
    let store = location.open().await.map_err(|source| Failure::CannotRun {
        what: "open the store in a process".to_owned(),
        source: Some(source),
    })?;
    let worker = Worker {
        stack: Stack::new(arguments.seed, &arguments.prefix, reporter),
        location,
        store: Arc::new(RwLock::new(store)),
        recorded,
    };
    send(&Report::Opened);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command = serde_json::from_str(&line)
            .map_err(|error| Failure::cannot_run(format!("{line:?} is not a command: {error}")))?;
        if matches!(command, Command::Quit) {
            break;
        }
        let worker = worker.clone();
        tokio::spawn(async move { worker.execute(command).await });
    }
    let store = worker.store.read().await.clone();
    store.close().await.map_err(|source| Failure::CannotRun {
        what: "close the store in a process".to_owned(),
        source: Some(source.into()),
    })?;
    Ok(Figures::default())
}

/// Makes a panic in any task abort this process. The supervisor then detects it.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Writes a report as one line. When this function returns, the line is in the pipe. The supervisor
/// receives it even if this process is then killed.
fn send(report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else { return };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        // The supervisor has ended.
        std::process::exit(3);
    }
}

impl Worker {
    async fn execute(self, command: Command) {
        match command {
            Command::Run(job) => {
                let store = self.store.read().await.clone();
                let outcome = self.stack.send(store.clone(), &job).await;
                let outcome = match (outcome, store.flush().await) {
                    (Outcome::Dropped, Err(error)) => Outcome::Failed { error: chain(&error) },
                    (outcome, _) => outcome,
                };
                send(&Report::Ended { turn: job.turn, outcome });
            }
            Command::PretendToRun(job) => self.pretend_to_run(&job),
            Command::RunWithoutResult(job) => self.run_without_result(&job).await,
            Command::Prune { conversation, keep } => {
                let store = self.store.read().await.clone();
                let pruned = store.as_dyn().prune(&key(conversation), Keep::Messages(keep)).await;
                let result = pruned.map(|pruned| pruned.messages).map_err(|error| chain(&error));
                send(&Report::Pruned { conversation, result });
            }
            Command::Backup { to } => {
                let result = self.back_up(&to).await;
                send(&Report::BackedUp { to, result });
            }
            Command::Restart { leaks } => {
                let result = self.restart(leaks).await;
                send(&Report::Restarted { result });
            }
            Command::Measure { number } => {
                let mut measures = self.recorded.take();
                measures.outbox =
                    self.store.read().await.handle().unsaved_conversations().len() as u64;
                send(&Report::Measured { number, measures });
            }
            Command::Quit => {}
        }
    }

    async fn back_up(&self, to: &Path) -> Result<u64, String> {
        let store = self.store.read().await.clone();
        let file = store.file.ok_or("the store has no file")?;
        Backup::of(&file).write(to).await.map_err(|error| chain(&error))
    }

    async fn restart(&self, leaks: bool) -> Result<(), String> {
        let opened = self.location.open().await.map_err(|error| chain(&*error))?;
        let former = std::mem::replace(&mut *self.store.write().await, opened);
        if leaks {
            std::mem::forget(former);
            // Also leaks open files: a busy machine may perform too few restarts to exceed the
            // bound.
            for _ in 0..64 {
                std::mem::forget(std::fs::File::open("/dev/null").map_err(|error| chain(&error))?);
            }
            return Ok(());
        }
        former.close().await.map_err(|error| chain(&error))
    }

    fn pretend_to_run(&self, job: &Job) {
        let token = format!("{}never{}", self.stack.prefix, job.seed);
        let answered = TurnEvent::Answered { token: token.clone(), calls: Vec::new() };
        for event in [TurnEvent::Asked { shown: vec![] }, answered] {
            send(&Report::Happened { turn: job.turn, event });
        }
        send(&Report::Ended { turn: job.turn, outcome: Outcome::Answered { token } });
    }

    async fn run_without_result(&self, job: &Job) {
        let token = format!("{}dangling{}", self.stack.prefix, job.seed);
        let call = format!("{token}.0");
        let calls = vec![call.clone()];
        let answered = TurnEvent::Answered { token: token.clone(), calls };
        send(&Report::Happened { turn: job.turn, event: answered });
        let store = self.store.read().await.clone();
        let outcome = match store_dangling_call(&store, job, &token, call).await {
            Ok(_) => Outcome::Answered { token },
            Err(error) => Outcome::Failed { error: chain(&error) },
        };
        send(&Report::Ended { turn: job.turn, outcome });
    }
}

async fn store_dangling_call(
    store: &OpenStore,
    job: &Job,
    token: &str,
    call: String,
) -> Result<Revision, StoreError> {
    let key = key(job.turn.conversation);
    let head = store.head(&key).await?;
    let input = Message::user(text(&job.turn.token()));
    let mut answer = Message::assistant(text(token));
    answer.parts.push(tower_chat::Part::ToolCall(ToolCall::new(call, "look", "[]")));
    let first = MessageId { run: job.run, index: 0 };
    let write = Write::new(key, first, head.revision, [input.into(), answer.into()]);
    let slot = store.reserve().await?;
    store.append(slot, vec![write]).await.map_err(|error| error.source)
}
