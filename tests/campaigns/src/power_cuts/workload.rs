//! The workload that uses a store while strace records its system calls.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::json;
use tokio::task::JoinSet;
use tower::{Service, ServiceExt};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, Message, Part,
    PersistenceMode, ToolCall, ToolDefinition, Tools,
    run::{Conversation, RunId},
    store::{
        self, Keep, Maintenance, Revision, StoreError,
        author::{Slot, Ticket, Write},
    },
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_sqlite::{Backup, Durability, SqliteStore};
use tower_chat_testkit::{Rng, ScriptedModel, Step};

use super::notes::{Action, Note, Noted, Notes};

pub(super) const FILE: &str = "chat.db";
pub(super) const SCOPE: &str = "alice";

/// The arguments of a workload, which runs in its own process.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkloadArguments {
    #[arg(long)]
    pub(super) seed: u64,
    #[arg(long)]
    pub(super) workload: u64,
    #[arg(long)]
    pub(super) folder: PathBuf,
    #[arg(long)]
    pub(super) notes: PathBuf,
    /// Acknowledges writes before they are stored
    #[arg(long)]
    pub(super) early: bool,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) is_full: bool,
    /// Whether the workload writes enough for SQLite to make automatic checkpoints.
    pub(super) is_large: bool,
    phases: usize,
    tasks: usize,
    steps: usize,
}

impl Plan {
    pub(super) fn of(seed: u64, workload: u64) -> Self {
        let mut rng = Rng::of(seed, workload);
        Self {
            is_full: workload % 3 != 2,
            is_large: rng.one_in(8),
            phases: 1 + rng.below(3),
            tasks: 1 + rng.below(4),
            steps: 3 + rng.below(8),
        }
    }

    fn durability(&self) -> Durability {
        if self.is_full { Durability::Full } else { Durability::Normal }
    }
}

/// A planted fault: a store that acknowledges each write before it is stored.
struct EarlyStore(SqliteStore);

impl store::author::StoreWrapper for EarlyStore {
    type Inner = SqliteStore;

    fn inner(&self) -> &SqliteStore {
        &self.0
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let expected = writes.last().map_or(Revision::ABSENT, Write::result);
        drop(self.0.append(slot, writes));
        Ticket::done(Ok(expected))
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.inner().summaries()
    }
}

pub(super) fn run(arguments: &WorkloadArguments) -> Result<(), BoxError> {
    let notes = Notes::create(&arguments.notes)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(3).enable_all().build()?;
    runtime.block_on(phases(arguments, &notes))
}

async fn phases(arguments: &WorkloadArguments, notes: &Notes) -> Result<(), BoxError> {
    let plan = Arc::new(Plan::of(arguments.seed, arguments.workload));
    let path = arguments.folder.join(FILE);
    for phase in 0..plan.phases {
        let opened = SqliteStore::options().with_durability(plan.durability());
        let sqlite = opened.open(&path).await?;
        let inner: Arc<dyn HistoryStore> = match arguments.early {
            true => Arc::new(EarlyStore(sqlite.clone())),
            false => Arc::new(sqlite.clone()),
        };
        let store = Noted { inner, notes: notes.clone() };
        let mut rng = Rng::of(arguments.seed, arguments.workload * 1000 + phase as u64);
        let mut tasks = JoinSet::new();
        for task in 0..plan.tasks {
            let owner = Owner {
                store: store.clone(),
                plan: plan.clone(),
                rng: Rng::of(rng.next(), task as u64),
                name: format!("phase {phase}, task {task}"),
                conversations: Vec::new(),
                made: 0,
                runs: 0,
                texts: 0,
            };
            tasks.spawn(owner.work());
        }
        let folder = arguments.folder.clone();
        tasks.spawn(maintain(sqlite.clone(), folder, notes.clone(), Rng::of(rng.next(), 99)));
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        match rng.below(4) {
            // The connections remain open in the next phase, as connections of another process would.
            0 => std::mem::forget(sqlite),
            1 => drop((store, sqlite)),
            _ => {
                let number = notes.begin(Action::MakeDurable { how: "close".to_owned() });
                let closed = HistoryStore::close(&store).await;
                notes.end(number, &closed.as_ref().map(|()| 0));
                closed?;
            }
        }
    }
    Ok(())
}

/// Makes checkpoints, vacuums and backups while other tasks write.
async fn maintain(
    store: SqliteStore,
    folder: PathBuf,
    notes: Notes,
    mut rng: Rng,
) -> Result<(), BoxError> {
    for index in 0..rng.below(4) {
        tokio::time::sleep(Duration::from_millis(rng.next() % 15)).await;
        let durable = |how: &str| Action::MakeDurable { how: how.to_owned() };
        match rng.below(6) {
            0 | 1 => {
                let number = notes.begin(durable("checkpoint"));
                notes.end(number, &retryable(store.checkpoint().await)?);
            }
            2 => {
                let number = notes.begin(durable("vacuum"));
                notes.end(number, &retryable(store.vacuum().await)?);
            }
            how => {
                let name = format!("backup {}.db", rng.below(3) * (index + 1) % 3);
                let backup = match how {
                    3 => Backup::of_file(folder.join(FILE)),
                    _ => Backup::of(&store),
                };
                let number = notes.begin(Action::Backup { name: name.clone() });
                let outcome = backup.replacing(true).write(folder.join(name)).await;
                notes.end(number, &outcome.as_ref().map(|_| 0));
                outcome?;
            }
        }
    }
    Ok(())
}

/// Separates the errors. The outer error is not retryable and ends the workload. The inner error is
/// retryable, such as the error of a checkpoint while readers are active. The workload notes it and
/// continues.
fn retryable(outcome: Result<(), StoreError>) -> Result<Result<u64, StoreError>, StoreError> {
    match outcome {
        Err(error) if !error.is_retryable() => Err(error),
        outcome => Ok(outcome.map(|()| 0)),
    }
}

/// A task with its own conversations.
struct Owner {
    store: Noted,
    plan: Arc<Plan>,
    rng: Rng,
    name: String,
    /// The conversations. The flag is set if the last run may still be open (not committed and not
    /// discarded).
    conversations: Vec<(ConversationKey, bool)>,
    made: usize,
    runs: usize,
    texts: usize,
}

impl Owner {
    async fn work(mut self) -> Result<(), BoxError> {
        for _ in 0..self.plan.steps {
            let chosen = self.rng.below(self.conversations.len());
            let found = self.conversations.get(chosen).cloned();
            match (self.rng.below(16), found) {
                (0, Some((key, false))) => {
                    let keep = Keep::Messages(1 + self.rng.next() % 6);
                    Maintenance::prune(&self.store, &key, keep).await?;
                }
                (1, Some((key, _))) => {
                    HistoryStore::delete(&self.store, &key).await?;
                    self.conversations.remove(chosen);
                }
                (2, Some((key, _))) => {
                    let copy = self.new_key();
                    Maintenance::fork_at(&self.store, &key, None, &copy).await?;
                    self.conversations.push((copy, false));
                }
                (3..=13, Some(_)) => self.run(chosen).await?,
                _ => {
                    let key = self.new_key();
                    self.conversations.push((key, false));
                    self.run(self.conversations.len() - 1).await?;
                }
            }
        }
        Ok(())
    }

    fn new_key(&mut self) -> ConversationKey {
        self.made += 1;
        ConversationKey::new(SCOPE, format!("{}, {}", self.name, self.made))
    }

    async fn run(&mut self, conversation: usize) -> Result<(), BoxError> {
        let Some((key, _)) = self.conversations.get(conversation).cloned() else { return Ok(()) };
        self.runs += 1;
        let mode = match self.rng.below(3) {
            0 => PersistenceMode::PerRun,
            1 => PersistenceMode::PerServiceCall,
            _ => PersistenceMode::Journaled,
        };
        let is_abandoned = self.rng.one_in(6);
        let (script, texts) = self.script(is_abandoned);
        let request = self.text("asks");
        let streamed = self.rng.one_in(2);
        let mut client = stack(script, self.store.clone(), mode)?;
        let run = RunId::new();
        let request = ChatRequest::user(request).in_run(Conversation { key: key.clone(), run });
        let request = if streamed { request.streamed() } else { request };
        let answer = async {
            let response = client.ready().await?.call(request).await?;
            response.collect().await
        };
        if is_abandoned {
            // The caller drops the response before the model answers.
            let patience = Duration::from_millis(10 + self.rng.next() % 20);
            drop(tokio::time::timeout(patience, answer).await);
        } else {
            let answer = answer.await?;
            if answer.finish.saved.is_some_and(|saved| saved.unsaved > 0) {
                return Err(format!("a write of {key} failed").into());
            }
            let key = super::notes::key(&key);
            self.store.notes.write(&Note::Answered { key, run: run.to_string(), texts });
        }
        if let Some((_, is_open)) = self.conversations.get_mut(conversation) {
            *is_open = is_abandoned && mode == PersistenceMode::Journaled;
        }
        Ok(())
    }

    fn script(&mut self, is_abandoned: bool) -> (Vec<Step>, Vec<String>) {
        let (mut steps, mut texts) = (Vec::new(), Vec::new());
        for round in 0..self.rng.below(4) {
            let text = self.text("works");
            let mut message = Message::assistant(text.clone());
            for call in 0..1 + self.rng.below(3) {
                let tool = if self.rng.one_in(4) { "fail" } else { "look" };
                let id = format!("call {} {round} {call}", self.runs);
                let arguments = json!({ "what": self.text("looks") }).to_string();
                message.parts.push(Part::ToolCall(ToolCall::new(id, tool, arguments)));
            }
            steps.push(Step::message(message));
            texts.push(text);
        }
        let text = self.text("answers");
        steps.push(if is_abandoned { Step::hang() } else { Step::text(text.clone()) });
        texts.push(text);
        (steps, texts)
    }

    /// Returns a unique text.
    fn text(&mut self, what: &str) -> String {
        let length = match (self.plan.is_large, self.rng.below(12)) {
            (true, 0..4) => 20_000 + self.rng.below(90_000),
            (_, 0) => 3_000 + self.rng.below(9_000),
            _ => self.rng.below(300),
        };
        self.texts += 1;
        let mut text = format!("{} {what} in run {}, text {}. ", self.name, self.runs, self.texts);
        while text.len() < length {
            text.push_str(&format!("{:016x} ", self.rng.next()));
        }
        text
    }
}

pub(crate) fn stack(
    script: Vec<Step>,
    store: impl HistoryStore,
    mode: PersistenceMode,
) -> Result<ChatPipeline, BoxError> {
    let definition = |name| ToolDefinition::new(name, "Looks.", json!({"type": "object"}));
    let tools = Tools::new()
        .with(tool_fn(definition("look"), |context| async move {
            Ok(ToolOutput::from(format!("seen by {}", context.call_id())))
        }))
        .with(tool_fn(definition("fail"), |context| async move {
            let error: BoxError = format!("{} sees nothing", context.call_id()).into();
            Err::<ToolOutput, _>(error)
        }));
    let pipeline = ChatPipeline::builder(ScriptedModel::new(script)).tools(tools);
    Ok(pipeline.history(store).persistence(mode).build()?)
}
