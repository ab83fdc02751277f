//! Functions that several tests of the command use.

mod damaged;
mod model_server;
mod observed;
mod running;
mod runs;
mod store_file;
mod stores;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tower_chat::{
    ConversationKey, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{
        Revision,
        author::{ToolRecord, Write},
    },
};
use tower_chat_sqlite::SqliteStore;

pub(crate) use self::{
    damaged::{call, fill_intact, fill_play, fill_repairable, fill_unreadable},
    model_server::{ModelServer, Reply},
    observed::{decided, fill_observed, hats, long, odd, run_id, wardrobe},
    running::{OnTerminal, Piped, run_with_input},
    runs::{PERSISTENCE, fill_open_runs, fill_runs},
    store_file::{
        count_messages_with, dump, execute, execute_unchecked, make_newer, replace_stored,
        stored_messages,
    },
    stores::{Kind, TestStore, each_store},
};

pub(crate) const MODES: [&str; 3] = ["per-run", "per-service-call", "journaled"];

/// Returns the command. Environment variables that would change its behaviour are removed.
pub(crate) fn tower_chat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-chat"));
    command.args(arguments).stdin(Stdio::null());
    for variable in ["RUST_LOG", "TOWER_CHAT_STORE", "TOWER_CHAT_KEYS", "COLUMNS"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    tower_chat(arguments).output().expect("the command runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the output is text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("the errors are text")
}

pub(crate) fn export_text(store: &str, more: &[&str]) -> String {
    let output = run(&[&["export", "--store", store], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

/// Returns the exported conversations of a store by id. The ids must be in order.
pub(crate) fn export(store: &str, more: &[&str]) -> BTreeMap<String, Value> {
    conversations_in_order(&export_text(store, more))
}

pub(crate) fn conversations_in_order(text: &str) -> BTreeMap<String, Value> {
    let lines: Vec<(String, Value)> = text
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).expect("a JSON object a line");
            let fields: Vec<&String> = line.as_object().expect("an object").keys().collect();
            assert_eq!(fields, ["id", "messages", "scope"], "{line}");
            (line["id"].as_str().expect("a text").to_owned(), line["messages"].take())
        })
        .collect();
    assert!(lines.windows(2).all(|pair| pair[0].0 < pair[1].0), "ids in order, each once");
    lines.into_iter().collect()
}

/// A SQLite store in a temporary folder.
pub(crate) struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("chat.db")
    }

    pub(crate) fn argument(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// Writes a file to the folder of the store, and returns the path of the file.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("the file is written");
        path.display().to_string()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Stores a conversation together with the record of its tool calls.
pub(crate) fn fill_recorded(
    store: &Store,
    scope: &str,
    id: &str,
    messages: Vec<Message>,
    tools: Vec<ToolRecord>,
) {
    fill_with(store, [(ConversationKey::new(scope, id), messages, tools)]);
}

/// Stores the same messages under each id in the scope `play`, without a record.
pub(crate) fn fill_many(store: &Store, ids: &[String], messages: impl Fn() -> Vec<Message>) {
    let key = |id: &String| ConversationKey::new("play", id.as_str());
    fill_with(store, ids.iter().map(|id| (key(id), messages(), Vec::new())));
}

fn fill_with(
    store: &Store,
    conversations: impl IntoIterator<Item = (ConversationKey, Vec<Message>, Vec<ToolRecord>)>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    runtime.block_on(async {
        let opened = SqliteStore::open(store.path()).await.unwrap();
        for (key, messages, tools) in conversations {
            let first = MessageId { run: RunId::new(), index: 0 };
            let messages = messages.into_iter().map(Into::into);
            let write = Write::new(key, first, Revision::ABSENT, messages).with_tools(tools);
            opened.append(opened.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
        opened.close().await.unwrap();
    });
}
