//! Functions that the tests of plays share.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tower_chat::{
    ConversationKey, HistoryStore,
    replay::{DanglingCalls, Replay},
    store::{Directory, History, Journal},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::recordings::Recordings;
use tower_chat_wire::openai_chat::{Audience, render_messages};

use crate::expected::without_generated_ids;

pub(crate) const MODES: [&str; 3] = ["per-run", "per-service-call", "journaled"];

const SCOPE: &str = "play";

/// Returns the command, without the environment variables that would change its output.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-chat-campaigns"));
    command.arg("play").args(arguments).stdin(Stdio::null());
    for variable in ["RUST_LOG", "TOWER_CHAT_STORE", "COLUMNS"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the output is text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("the errors are text")
}

/// Runs `play`. Returns the exit code, the lines before the last one, and the last line.
pub(crate) fn play(arguments: &[&str]) -> (i32, Vec<String>, Value) {
    let output = run(arguments);
    let mut lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    let last = lines.pop().unwrap_or_else(|| panic!("no summary: {}", stderr(&output)));
    let summary = serde_json::from_str(&last)
        .unwrap_or_else(|_| panic!("the last line is no JSON: {last} {}", stderr(&output)));
    (output.status.code().expect("no signal"), lines, summary)
}

/// Runs `play`, asserts that nothing diverges, and returns the summary.
pub(crate) fn play_well(arguments: &[&str]) -> Value {
    let (code, lines, summary) = play(arguments);
    assert_eq!((code, lines), (0, Vec::new()), "{arguments:?}: {summary}");
    assert_eq!(summary["divergences"], 0);
    summary
}

/// A SQLite store in its own folder.
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

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("the file is written");
        path.display().to_string()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the history of each conversation, by id.
    fn histories(&self) -> BTreeMap<String, History> {
        self.with(async |store| {
            let mut histories = BTreeMap::new();
            for key in listed(&store).await {
                let history = store.load(&key).await.expect("a history");
                histories.insert(key.id().to_owned(), history);
            }
            histories
        })
    }

    /// Returns the conversations in the format of OpenAI Chat Completions, by id.
    pub(crate) fn export(&self) -> BTreeMap<String, Value> {
        let exported = |history: History| {
            let mut replay = Replay::new(DanglingCalls::Drop);
            replay.push_from(&history.messages, 0);
            let view = replay.view();
            let messages = view.iter().map(|message| &**message);
            serde_json::to_value(render_messages(messages, Audience::Transcript)).expect("JSON")
        };
        self.histories().into_iter().map(|(id, history)| (id, exported(history))).collect()
    }

    /// Returns the visible messages of each conversation, by id.
    pub(crate) fn contents(&self) -> BTreeMap<String, Vec<String>> {
        let content = |history: History| {
            let messages = history.messages.iter();
            messages.map(|message| format!("{:?} {:?}", message.role, message.parts)).collect()
        };
        self.histories().into_iter().map(|(id, history)| (id, content(history))).collect()
    }

    /// Returns the number of open runs, which were neither committed nor discarded.
    pub(crate) fn open_runs(&self) -> usize {
        self.with(async |store| store.open_runs(SCOPE, None, 10).await.expect("a list").len())
    }

    fn with<T>(&self, work: impl AsyncFnOnce(SqliteStore) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
        runtime.block_on(async {
            let store = SqliteStore::open(self.path()).await.expect("a store");
            let done = work(store.clone()).await;
            store.close().await.expect("it closes");
            done
        })
    }
}

async fn listed(store: &SqliteStore) -> Vec<ConversationKey> {
    let mut keys: Vec<ConversationKey> = Vec::new();
    loop {
        let after = keys.last().map(ConversationKey::id);
        let page = store.list(SCOPE, after, 1000).await.expect("a list");
        if page.is_empty() {
            return keys;
        }
        keys.extend(page);
    }
}

/// Returns the number of stored messages, or 0 if there is no store.
pub(crate) fn stored_messages(path: &Path) -> usize {
    let count = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.query_row("SELECT count(*) FROM messages", [], |row| row.get::<_, i64>(0))
    };
    usize::try_from(count().unwrap_or(0)).unwrap()
}

pub(crate) fn replace_stored(path: &Path, text: &str, by: &str) -> usize {
    let connection = Connection::open(path).unwrap();
    let sql = "UPDATE messages SET body = replace(body, ?1, ?2) WHERE instr(body, ?1)";
    connection.execute(sql, [text, by]).unwrap()
}

/// Returns the recorded lines, each with its conversation id.
pub(crate) fn recorded(file: &str) -> Vec<(String, Value)> {
    let text = fs::read_to_string(file).expect("the file is there");
    let id = |line: &Value| line["id"].as_str().map_or_else(|| line["id"].to_string(), Into::into);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .map(|line: Value| (id(&line), line))
        .collect()
}

pub(crate) fn shapes() -> String {
    format!("{}/tests/transcripts/shapes.jsonl", env!("CARGO_MANIFEST_DIR"))
}

/// Returns several copies of this repository's conversations, each with its own id.
pub(crate) fn many_shapes(copies: usize) -> String {
    let lines = recorded(&shapes());
    let copies = (0..copies).flat_map(|copy| {
        lines.iter().map(move |(id, line)| {
            let mut line = line.clone();
            line["id"] = format!("{id} {copy}").into();
            format!("{line}\n")
        })
    });
    copies.collect()
}

pub(crate) fn data_files() -> Vec<String> {
    let files = Recordings::all().conversation_files().expect("the folders of the data");
    files.iter().map(|path| path.display().to_string()).collect()
}

pub(crate) fn assert_exported(
    file: &str,
    exported: &BTreeMap<String, Value>,
    expected_of: impl Fn(&Value) -> Option<Value>,
) {
    let expected: BTreeMap<String, Value> = recorded(file)
        .into_iter()
        .filter_map(|(id, line)| Some((id, expected_of(&line)?)))
        .collect();
    assert_eq!(
        exported.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>(),
        "the conversations of {file}"
    );
    for (id, expected) in expected {
        let (expected, found) = without_generated_ids(&expected, &exported[&id]);
        assert_eq!(found, expected, "conversation {id} of {file}");
    }
}
