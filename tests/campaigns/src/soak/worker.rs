//! One of the two processes: does what it is told, and tells what happens before it has happened to
//! the store.

use std::{io::Write as _, path::Path, sync::Arc};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::RwLock,
};
use tower_chat::{
    Message, MessageId, ToolCall,
    store::{HistoryStore, Keep, Revision, StoreError, author::Write},
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

/// One of the processes of `soak`
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerArguments {
    /// What the tokens of this process begin with
    #[arg(long)]
    prefix: String,
    /// Of the plans of the runs
    #[arg(long)]
    seed: u64,
    /// The kind of the store
    #[arg(long, value_enum)]
    store: StoreKind,
    /// Where it is
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

/// Works until it is told to quit, or whoever tells it is gone.
pub(super) async fn work(arguments: WorkerArguments) -> Result<Figures, Failure> {
    end_with_a_panic();
    let recorded = Recorded::default();
    metrics::set_global_recorder(recorded.clone())
        .map_err(|error| Failure::cannot_run(error.to_string()))?;
    let reporter = Reporter::new(|turn, event| {
        tell(&match event {
            Ok(event) => Report::Happened { turn, event },
            Err(what) => Report::Wrong { turn, what },
        });
    });
    let location = Location { kind: arguments.store, address: arguments.address };
    let store = location.open().await.map_err(|source| Failure::CannotRun {
        what: "a process of it cannot open the store".to_owned(),
        source: Some(source),
    })?;
    let worker = Worker {
        stack: Stack::new(arguments.seed, &arguments.prefix, reporter),
        location,
        store: Arc::new(RwLock::new(store)),
        recorded,
    };
    tell(&Report::Opened);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command = serde_json::from_str(&line)
            .map_err(|error| Failure::cannot_run(format!("{line:?} is no command: {error}")))?;
        if matches!(command, Command::Quit) {
            break;
        }
        let worker = worker.clone();
        tokio::spawn(async move { worker.obey(command).await });
    }
    let store = worker.store.read().await.clone();
    store.close().await.map_err(|source| Failure::CannotRun {
        what: "a process of it cannot close the store".to_owned(),
        source: Some(source.into()),
    })?;
    Ok(Figures::default())
}

/// Lets a panic in any task end this process, which the campaign notices.
fn end_with_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// A whole line in one write, which is in the pipe when it returns, whatever becomes of this process.
fn tell(report: &Report) {
    let Ok(mut line) = serde_json::to_vec(report) else { return };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        // The campaign has ended.
        std::process::exit(3);
    }
}

impl Worker {
    async fn obey(self, command: Command) {
        match command {
            Command::Run(job) => {
                let store = self.store.read().await.clone();
                let outcome = self.stack.send(store.clone(), &job).await;
                let outcome = match (outcome, store.flush().await) {
                    (Outcome::Gone, Err(error)) => Outcome::Failed { error: chain(&error) },
                    (outcome, _) => outcome,
                };
                tell(&Report::Ended { turn: job.turn, outcome });
            }
            Command::PretendToRun(job) => self.pretend_to_run(&job),
            Command::RunWithoutResult(job) => self.run_without_result(&job).await,
            Command::Prune { conversation, keep } => {
                let store = self.store.read().await.clone();
                let pruned = store.prune(&key(conversation), Keep::Messages(keep)).await;
                let result = pruned.map(|pruned| pruned.messages).map_err(|error| chain(&error));
                tell(&Report::Pruned { conversation, result });
            }
            Command::Backup { to } => {
                let result = self.back_up(&to).await;
                tell(&Report::BackedUp { to, result });
            }
            Command::Restart { is_forgotten } => {
                let result = self.restart(is_forgotten).await;
                tell(&Report::Restarted { result });
            }
            Command::Measure { number } => {
                let mut measures = self.recorded.take();
                measures.outbox =
                    self.store.read().await.handle().unsaved_conversations().len() as u64;
                tell(&Report::Measured { number, measures });
            }
            Command::Quit => {}
        }
    }

    async fn back_up(&self, to: &Path) -> Result<u64, String> {
        let store = self.store.read().await.clone();
        let file = store.file.ok_or("the store has no file")?;
        Backup::of(&file).write(to).await.map_err(|error| chain(&error))
    }

    /// Runs that are under way go on with the store that was closed, and are told so.
    async fn restart(&self, is_forgotten: bool) -> Result<(), String> {
        let opened = self.location.open().await.map_err(|error| chain(&*error))?;
        let former = std::mem::replace(&mut *self.store.write().await, opened);
        if is_forgotten {
            std::mem::forget(former);
            // And open files of its own, so that few restarts on a busy machine are found too.
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
            tell(&Report::Happened { turn: job.turn, event });
        }
        tell(&Report::Ended { turn: job.turn, outcome: Outcome::Answered { token } });
    }

    async fn run_without_result(&self, job: &Job) {
        let token = format!("{}dangling{}", self.stack.prefix, job.seed);
        let call = format!("{token}.0");
        let calls = vec![call.clone()];
        let answered = TurnEvent::Answered { token: token.clone(), calls };
        tell(&Report::Happened { turn: job.turn, event: answered });
        let store = self.store.read().await.clone();
        let outcome = match store_dangling_call(&store, job, &token, call).await {
            Ok(_) => Outcome::Answered { token },
            Err(error) => Outcome::Failed { error: chain(&error) },
        };
        tell(&Report::Ended { turn: job.turn, outcome });
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
