//! adk-rust: a scripted `Llm`, an `LlmAgent` with one tool, a `Runner`, and a
//! `SqliteSessionService`.
//!
//! The caller creates the pool, in WAL mode with `synchronous = FULL`. With
//! `SqliteSessionService::new`, SQLite would use a rollback journal, which needs several times as
//! many syncs.
//!
//! The program answers the commands of `benches/src/peers.rs`.

#[path = "../../../src/texts.rs"]
mod texts;

use std::{
    collections::VecDeque,
    error::Error,
    io::{BufRead as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use adk_agent::LlmAgentBuilder;
use adk_core::{
    AdkIdentity, AppName, Content, Event, FinishReason, FunctionResponseData, Llm, LlmRequest,
    LlmResponse, LlmResponseStream, Part, SessionId, Tool, ToolContext, UserId,
};
use adk_runner::Runner;
use adk_session::{
    AppendEventRequest, CreateRequest, GetRequest, SessionService, SqliteSessionService,
};
use futures::StreamExt as _;
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tempfile::TempDir;
use tokio::runtime::Runtime;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const VERSION: &str = "2.3.0";
const ROUNDS: usize = 20;
const CALLS: usize = ROUNDS + 1;
const ROUNDS_OF_STORED_TURN: usize = 4;
/// The number of bytes that `fill_log` writes. SQLite checkpoints a log of this size.
const BYTES_OF_LOG: i64 = 8_000_000;

const APP: &str = "bench";
const USER: &str = "user";
const CONVERSATION: &str = "measured";
const OTHER_CONVERSATION: &str = "another";
const FILE: &str = "sessions.db";

/// A model that returns one prepared answer for each call.
#[derive(Clone, Default)]
struct ScriptedModel(Arc<Mutex<VecDeque<Content>>>);

impl ScriptedModel {
    fn prepare(&self, stored: usize) {
        let calls = (0..ROUNDS).map(|number| call(stored + number));
        *self.0.lock().unwrap() = calls.chain([answer()]).collect();
    }

    fn unasked(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[async_trait::async_trait]
impl Llm for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn generate_content(
        &self,
        _: LlmRequest,
        _: bool,
    ) -> adk_core::Result<LlmResponseStream> {
        let content = self.0.lock().unwrap().pop_front();
        let response = LlmResponse {
            content,
            finish_reason: Some(FinishReason::Stop),
            turn_complete: true,
            ..LlmResponse::default()
        };
        Ok(Box::pin(futures::stream::once(async { Ok(response) })))
    }
}

struct SearchOrders;

#[async_trait::async_trait]
impl Tool for SearchOrders {
    fn name(&self) -> &str {
        texts::TOOL
    }

    fn description(&self) -> &str {
        "Looks orders up."
    }

    fn parameters_schema(&self) -> Option<Value> {
        Some(json!({"type": "object", "properties": {"order": {"type": "string"}}}))
    }

    async fn execute(&self, _: Arc<dyn ToolContext>, _: Value) -> adk_core::Result<Value> {
        Ok(result())
    }
}

struct Opened {
    sessions: Arc<SqliteSessionService>,
    runner: Runner,
    model: ScriptedModel,
    _folder: TempDir,
}

struct Responder {
    runtime: Runtime,
    folder: PathBuf,
    history: usize,
    template: Option<TempDir>,
    opened: Option<Opened>,
}

fn main() -> Outcome<()> {
    let folder = std::env::args().nth(1).ok_or("usage: adk-session-peer FOLDER")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut responder =
        Responder { runtime, folder: folder.into(), history: 0, template: None, opened: None };
    let versions = json!({"adk-session": VERSION, "adk-runner": VERSION});
    print(&json!({"pid": std::process::id(), "versions": versions}))?;
    for command in std::io::stdin().lock().lines() {
        print(&responder.answer(command?.trim())?)?;
    }
    Ok(())
}

fn print(answer: &Value) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

impl Responder {
    fn answer(&mut self, command: &str) -> Outcome<Value> {
        let words: Vec<_> = command.split_whitespace().collect();
        match *words.as_slice() {
            ["prepare", history] => self.prepare(history.parse()?)?,
            ["open", state] => self.open(state == "warm")?,
            ["run"] => return Ok(json!({"us": self.run()?})),
            ["close"] => self.close()?,
            _ => return Err(format!("unknown command {command:?}").into()),
        }
        Ok(json!({}))
    }

    fn prepare(&mut self, history: usize) -> Outcome<()> {
        let template = tempfile::tempdir_in(&self.folder)?;
        self.runtime.block_on(async {
            let sessions = sessions(template.path(), SqliteSynchronous::Off).await?;
            sessions.migrate().await?;
            for session in [CONVERSATION, OTHER_CONVERSATION] {
                let request = CreateRequest {
                    app_name: APP.to_owned(),
                    user_id: USER.to_owned(),
                    session_id: Some(session.to_owned()),
                    state: Default::default(),
                };
                sessions.create(request).await?;
            }
            for event in stored_events(history) {
                let identity = identity(CONVERSATION)?;
                sessions.append_event_for_identity(AppendEventRequest { identity, event }).await?;
            }
            sessions.pool().close().await;
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        })?;
        (self.history, self.template) = (history, Some(template));
        Ok(())
    }

    fn open(&mut self, is_warm: bool) -> Outcome<()> {
        let template = self.template.as_ref().ok_or("nothing was prepared")?;
        let copy = tempfile::tempdir_in(&self.folder)?;
        std::fs::copy(template.path().join(FILE), copy.path().join(FILE))?;
        let history = self.history;
        self.opened = Some(self.runtime.block_on(async {
            let sessions = Arc::new(sessions(copy.path(), SqliteSynchronous::Full).await?);
            let model = ScriptedModel::default();
            let agent = LlmAgentBuilder::new("bench")
                .model(Arc::new(model.clone()))
                .tool(Arc::new(SearchOrders))
                .build()?;
            let runner = Runner::builder()
                .app_name(APP)
                .agent(Arc::new(agent))
                .session_service(sessions.clone())
                .build()?;
            let opened = Opened { sessions, runner, model, _folder: copy };
            opened.fill_log().await?;
            opened.model.prepare(0);
            opened.run(OTHER_CONVERSATION).await?;
            if is_warm && opened.stored().await? != history {
                return Err("messages are missing before the run".into());
            }
            opened.model.prepare(history);
            Ok::<_, Box<dyn Error + Send + Sync>>(opened)
        })?);
        Ok(())
    }

    fn run(&self) -> Outcome<f64> {
        let opened = self.opened.as_ref().ok_or("nothing is open")?;
        let start = Instant::now();
        let last = self.runtime.block_on(opened.run(CONVERSATION))?;
        let us = start.elapsed().as_secs_f64() * 1e6;
        match last == texts::FINAL_TEXT && opened.model.unasked() == 0 {
            true => Ok(us),
            false => Err(format!("the run ended with {last:?}").into()),
        }
    }

    fn close(&mut self) -> Outcome<()> {
        let opened = self.opened.take().ok_or("nothing is open")?;
        let expected = self.history + 2 * CALLS;
        let found = self.runtime.block_on(opened.stored())?;
        self.runtime.block_on(opened.sessions.pool().close());
        match found == expected {
            true => Ok(()),
            false => Err(format!("{found} messages are stored, not {expected}").into()),
        }
    }
}

impl Opened {
    /// Executes one run, and returns its final answer.
    async fn run(&self, session: &str) -> Outcome<String> {
        let input = Content::new("user").with_text(texts::INPUT);
        let (user, session) = (UserId::try_from(USER)?, SessionId::try_from(session)?);
        let mut events = self.runner.run(user, session, input).await?;
        let mut last = String::new();
        while let Some(event) = events.next().await {
            for part in event?.llm_response.content.into_iter().flat_map(|content| content.parts) {
                if let Part::Text { text } = part {
                    last = text;
                }
            }
        }
        Ok(last)
    }

    /// Returns the number of stored messages.
    async fn stored(&self) -> Outcome<usize> {
        let request = GetRequest {
            app_name: APP.to_owned(),
            user_id: USER.to_owned(),
            session_id: CONVERSATION.to_owned(),
            num_recent_events: None,
            after: None,
        };
        Ok(self.sessions.get(request).await?.events().len())
    }

    /// Writes to the log until SQLite must checkpoint it, and executes a checkpoint. The next write
    /// then reuses the log from its beginning.
    async fn fill_log(&self) -> Outcome<()> {
        let pool = self.sessions.pool();
        sqlx::query("CREATE TABLE filling (bytes BLOB)").execute(pool).await?;
        let fill = sqlx::query("INSERT INTO filling VALUES (zeroblob(?))").bind(BYTES_OF_LOG);
        fill.execute(pool).await?;
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(pool).await?;
        Ok(())
    }
}

async fn sessions(folder: &Path, synchronous: SqliteSynchronous) -> Outcome<SqliteSessionService> {
    let options = SqliteConnectOptions::new()
        .filename(folder.join(FILE))
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
    Ok(SqliteSessionService::from_pool(pool))
}

fn identity(session: &str) -> Outcome<AdkIdentity> {
    let (app, user) = (AppName::try_from(APP)?, UserId::try_from(USER)?);
    Ok(AdkIdentity::new(app, user, SessionId::try_from(session)?))
}

/// Returns stored turns with this total number of messages. A turn is a question, four rounds and
/// the answer.
fn stored_events(count: usize) -> impl Iterator<Item = Event> {
    let turns = (0..).flat_map(|turn| {
        let rounds = (0..ROUNDS_OF_STORED_TURN).flat_map(move |round| {
            let number = turn * ROUNDS_OF_STORED_TURN + round;
            [("bench", call(number)), ("bench", result_content(number))]
        });
        let input = Content::new("user").with_text(texts::STORED_INPUT);
        std::iter::once(("user", input)).chain(rounds).chain([("bench", answer())])
    });
    turns.take(count).map(|(author, content)| {
        let mut event = Event::new("stored");
        event.author = author.to_owned();
        event.llm_response.content = Some(content);
        event
    })
}

fn call_id(number: usize) -> Option<String> {
    Some(format!("call_{number:08}"))
}

fn call(number: usize) -> Content {
    let args = serde_json::from_str(texts::ARGUMENTS).unwrap();
    let (name, id) = (texts::TOOL.to_owned(), call_id(number));
    let part = Part::FunctionCall { name, args, id, thought_signature: None };
    Content { role: "model".to_owned(), parts: vec![part] }
}

fn result() -> Value {
    json!({"result": texts::RESULT_TEXT})
}

fn result_content(number: usize) -> Content {
    let function_response = FunctionResponseData::new(texts::TOOL, result());
    let id = call_id(number);
    let part = Part::FunctionResponse { function_response, id, annotations: None };
    Content { role: "function".to_owned(), parts: vec![part] }
}

fn answer() -> Content {
    Content::new("model").with_text(texts::FINAL_TEXT)
}
