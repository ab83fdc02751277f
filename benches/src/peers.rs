//! The process of tower-chat in the comparison of `benches/peers`. It executes a workload on
//! command.
//!
//! `peers FOLDER STORE` reads one command from each line of standard input, and answers each with
//! one line of JSON. STORE is `full` or `normal`, for SQLite with that durability, or the address
//! of a PostgreSQL server. All stores are used in per-service-call mode behind a [`CachingStore`].
//!
//! - `prepare HISTORY`: sets the number of stored messages in later conversations.
//! - `open warm` or `open cold`: opens the store, and executes a run in another conversation. After
//!   `warm`, the conversation of the next run is in the cache. After `cold`, the next run loads it.
//! - `run`: executes one run, including its load. The answer has the time in microseconds.
//! - `close`: counts the stored messages, and closes the store.

use std::{
    io::{BufRead as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower_chat::{BoxError, ChatPipeline, ConversationKey, HistoryStore, Message, PersistenceMode};
use tower_chat_cache::CachingStore;
use tower_chat_postgres::PostgresStore;
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::{
    report::us_since,
    workload::{self, CALLS, Model},
};

/// The number of bytes that are written to the log before a run. SQLite checkpoints a log of this
/// size, and the run in the other conversation then restarts the log at its beginning. The measured
/// run therefore writes to a reused log, which is faster than a growing one.
const BYTES_OF_LOG: usize = 6 << 20;

/// Answers to commands until standard input ends.
pub fn main() -> ExitCode {
    match answer_commands() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer_commands() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(store)) = (arguments.next(), arguments.next()) else {
        return Err("usage: peers FOLDER full|normal|ADDRESS".into());
    };
    let mut responder = Responder::new(folder.into(), Backend::named(store))?;
    print(&json!({"pid": std::process::id(), "versions": {}}))?;
    for command in std::io::stdin().lock().lines() {
        print(&responder.answer(command?.trim())?)?;
    }
    Ok(())
}

fn print(answer: &Value) -> Result<(), BoxError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}

enum Backend {
    Sqlite(Durability),
    Postgres { address: String },
}

impl Backend {
    fn named(name: String) -> Self {
        match name.as_str() {
            "full" => Self::Sqlite(Durability::Full),
            "normal" => Self::Sqlite(Durability::Normal),
            _ => Self::Postgres { address: name },
        }
    }
}

struct Responder {
    runtime: Runtime,
    folder: PathBuf,
    backend: Backend,
    history: usize,
    /// The file with the stored messages, if the store is a file.
    template: Option<TempDir>,
    opened: Option<Opened>,
    repetitions: usize,
}

struct Opened {
    store: Arc<dyn HistoryStore>,
    pipeline: ChatPipeline,
    model: Model,
    key: ConversationKey,
    _folder: Option<TempDir>,
}

const FILE: &str = "store.db";

impl Responder {
    fn new(folder: PathBuf, backend: Backend) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (template, opened) = (None, None);
        Ok(Self { runtime, folder, backend, history: 0, template, opened, repetitions: 0 })
    }

    fn answer(&mut self, command: &str) -> Result<Value, BoxError> {
        let words: Vec<_> = command.split_whitespace().collect();
        match *words.as_slice() {
            ["prepare", history] => self.prepare(history.parse()?)?,
            ["open", "warm"] => self.open(true)?,
            ["open", "cold"] => self.open(false)?,
            ["run"] => return Ok(json!({"us": self.run()?})),
            ["close"] => self.close()?,
            _ => return Err(format!("unknown command {command:?}").into()),
        }
        Ok(json!({}))
    }

    fn prepare(&mut self, history: usize) -> Result<(), BoxError> {
        self.history = history;
        if matches!(self.backend, Backend::Sqlite(_)) {
            let template = self.folder()?;
            self.runtime.block_on(async {
                let store = sqlite(template.path(), Durability::Normal).await?;
                fill(&store, &key(0), history).await?;
                Ok::<_, BoxError>(store.close().await?)
            })?;
            self.template = Some(template);
        }
        Ok(())
    }

    fn open(&mut self, is_warm: bool) -> Result<(), BoxError> {
        let folder = match &self.template {
            Some(template) => {
                let copy = self.folder()?;
                std::fs::copy(template.path().join(FILE), copy.path().join(FILE))?;
                Some(copy)
            }
            None => None,
        };
        self.repetitions += 1;
        let opened = self.runtime.block_on(self.opened(folder, is_warm))?;
        self.opened = Some(opened);
        Ok(())
    }

    async fn opened(&self, folder: Option<TempDir>, is_warm: bool) -> Result<Opened, BoxError> {
        let (store, key): (Arc<dyn HistoryStore>, _) = match (&self.backend, &folder) {
            (Backend::Sqlite(durability), Some(folder)) => {
                let store = sqlite(folder.path(), *durability).await?;
                (Arc::new(CachingStore::new(store)), key(0))
            }
            (Backend::Postgres { address }, _) => {
                let store = PostgresStore::options().connect(address).await?;
                // A database is not copied for each run. Each run therefore has its own
                // conversation.
                fill(&store, &key(self.repetitions), self.history).await?;
                (Arc::new(CachingStore::new(store)), key(self.repetitions))
            }
            (Backend::Sqlite(_), None) => return Err("nothing was prepared".into()),
        };
        let model = Model::default();
        let pipeline =
            workload::pipeline(&model, Some((store.clone(), PersistenceMode::PerServiceCall)))?;
        if folder.is_some() {
            let messages = vec![Message::user("x".repeat(BYTES_OF_LOG)).into()];
            let write = workload::first_write(&ConversationKey::new("peers", "log"), messages);
            store.append(store.reserve().await?, vec![write]).await?;
        }
        let other = ConversationKey::new("peers", format!("another-{}", self.repetitions));
        run(pipeline.clone(), model.clone(), other).await?;
        if is_warm && store.load(&key).await?.messages.len() != self.history {
            return Err("messages are missing before the run".into());
        }
        Ok(Opened { store, pipeline, model, key, _folder: folder })
    }

    fn run(&self) -> Result<f64, BoxError> {
        let opened = self.opened.as_ref().ok_or("nothing is open")?;
        let Opened { pipeline, model, key, .. } = opened;
        let task = run(pipeline.clone(), model.clone(), key.clone());
        self.runtime.block_on(async { tokio::spawn(task).await? })
    }

    fn close(&mut self) -> Result<(), BoxError> {
        let opened = self.opened.take().ok_or("nothing is open")?;
        let Opened { store, key, .. } = &opened;
        let expected = self.history + 2 * CALLS;
        self.runtime.block_on(async {
            let found = store.load(key).await?.messages.len();
            store.close().await?;
            match found == expected {
                true => Ok(()),
                false => Err(format!("{found} messages are stored, not {expected}").into()),
            }
        })
    }

    fn folder(&self) -> Result<TempDir, std::io::Error> {
        tempfile::Builder::new().prefix("tower-chat-").tempdir_in(&self.folder)
    }
}

async fn sqlite(folder: &Path, durability: Durability) -> Result<SqliteStore, BoxError> {
    Ok(SqliteStore::options().with_durability(durability).open(folder.join(FILE)).await?)
}

async fn fill(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    history: usize,
) -> Result<(), BoxError> {
    if history > 0 {
        let write = workload::first_write(key, workload::stored_messages(history));
        store.append(store.reserve().await?, vec![write]).await?;
    }
    Ok(())
}

/// Returns the time of one run, in microseconds.
async fn run(
    mut pipeline: ChatPipeline,
    model: Model,
    key: ConversationKey,
) -> Result<f64, BoxError> {
    model.prepare(CALLS - 1);
    let request = workload::input().in_conversation(key);
    let start = Instant::now();
    workload::run(&mut pipeline, &model, request, CALLS).await?;
    Ok(us_since(start))
}

fn key(conversation: usize) -> ConversationKey {
    ConversationKey::new("peers", format!("conversation-{conversation}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_answered_warm_and_cold() -> Result<(), BoxError> {
        let folder = tempfile::tempdir()?;
        for durability in ["full", "normal"] {
            let backend = Backend::named(durability.to_owned());
            let mut responder = Responder::new(folder.path().to_owned(), backend)?;
            for history in [0, 20] {
                responder.answer(&format!("prepare {history}"))?;
                for open in ["open warm", "open cold"] {
                    responder.answer(open)?;
                    assert!(responder.answer("run")?["us"].as_f64().is_some_and(|us| us > 0.0));
                    responder.answer("close")?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn what_cannot_be_done_is_an_error() -> Result<(), BoxError> {
        let folder = tempfile::tempdir()?;
        let backend = Backend::named("normal".to_owned());
        let mut responder = Responder::new(folder.path().to_owned(), backend)?;
        for (command, error) in [
            ("open warm", "nothing was prepared"),
            ("run", "nothing is open"),
            ("close", "nothing is open"),
            ("open hot", r#"unknown command "open hot""#),
        ] {
            let found = responder.answer(command).expect_err(command);
            assert_eq!(found.to_string(), error, "{command}");
        }
        responder.answer("prepare 20")?;
        responder.answer("open cold")?;
        let found = responder.answer("close").expect_err("a run is missing");
        assert_eq!(found.to_string(), "20 messages are stored, not 62");
        Ok(())
    }
}
