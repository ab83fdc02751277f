//! A run of many service calls with long texts, over an SQLite file.
//!
//! A child process executes the run. The parent kills the child with SIGKILL at random moments and
//! starts another child, which continues the run. After every kill, the stored history must be
//! valid and contain no text twice. At the end, it must contain each text once and in order.
//!
//! In per-service-call mode, a tool that was running during a kill has no result in the history.
//! The model receives a result that reports the interruption.
//!
//! A child that is not killed reports the bytes that it has written between the service calls. They
//! must not depend on the number of earlier service calls.
//!
//! `TOWER_CHAT_CALLS` sets the number of service calls, `TOWER_CHAT_KILLS` the number of kills for
//! each mode, and `TOWER_CHAT_SEED` the moments of the kills. This command executes a run of 100
//! service calls with 200,000 tokens, and kills it 200 times in each mode:
//!
//! ```text
//! TOWER_CHAT_CALLS=100 TOWER_CHAT_KILLS=200 cargo test -p tower-chat-tests --test tests long_run -- --nocapture
//! ```

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde_json::json;
use tempfile::TempDir;
use tower::{Layer, ServiceExt};
use tower_chat::{
    ChatRequest, ConversationKey, Finish, HistoryStore, Message,
    PersistenceMode::{self, Journaled, PerRun, PerServiceCall},
    Role, ToolCall, ToolDefinition, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    replay::{DanglingCalls, Replay},
    run::{Clock, Conversation, RunId},
    store::{History, Journal},
    tool::ToolOutput,
    tool_fn,
    validate::validate_messages,
};
use tower_chat_sqlite::{Durability, SqliteStore};
use tower_chat_testkit::{Rng, ScriptedModel, Step};

use crate::search::variable;

const SEED: u64 = 11;
const CALLS: usize = 16;
const KILLS: usize = 4;
/// The length of each answer and of each result: about 1,000 tokens.
const LENGTH: usize = 4_000;
/// The maximum ratio of the written bytes to the length of the texts. A journaled run writes each
/// message twice, and every byte is first written to the log.
const FACTOR: f64 = 8.0;
/// The maximum ratio of the bytes written in the last quarter of the service calls to the bytes
/// written in the first quarter.
const GROWTH: f64 = 1.5;

/// The work of a child process.
#[derive(Debug, Clone, Copy)]
struct Task {
    mode: PersistenceMode,
    calls: usize,
    /// The number of earlier children.
    attempt: u32,
}

impl Task {
    fn start(self, folder: &Path) -> Child {
        let Self { mode, calls, attempt } = self;
        let mode = match mode {
            PerRun => "per-run",
            PerServiceCall => "per-service-call",
            _ => "journaled",
        };
        Command::new(env::current_exe().expect("this test"))
            .args(["--exact", "long_run::a_child", "--ignored", "--nocapture"])
            .env("TOWER_CHAT_LONG_RUN", folder)
            .env("TOWER_CHAT_LONG_RUN_TASK", format!("{mode} {calls} {attempt}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the child starts")
    }

    fn of(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let mode = match words[0] {
            "per-run" => PerRun,
            "per-service-call" => PerServiceCall,
            _ => Journaled,
        };
        let (calls, attempt) = (words[1].parse().expect("calls"), words[2].parse().expect("n"));
        Self { mode, calls, attempt }
    }
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "book")
}

async fn open(folder: &Path) -> SqliteStore {
    let options = SqliteStore::options().with_durability(Durability::Normal);
    options.open(folder.join("chat.db")).await.expect("the file opens")
}

/// Returns a text of [`LENGTH`] characters with a unique beginning.
fn text(kind: &str, number: usize) -> String {
    let mut rng = Rng::of(SEED, number as u64);
    let mut text = format!("{kind} {number}:");
    while text.len() < LENGTH {
        text.push_str(&format!(" {:x}", rng.next()));
    }
    text.truncate(LENGTH);
    text
}

/// Returns the texts that the history must contain at the end, in order.
fn all_texts(calls: usize) -> Vec<String> {
    let rounds = (0..calls - 1).flat_map(|call| [text("answer", call), text("result", call)]);
    let question = ["Read the book.".to_owned()];
    question.into_iter().chain(rounds).chain([text("answer", calls - 1)]).collect()
}

fn texts(history: &History) -> Vec<String> {
    let text = |message: &Arc<Message>| match message.role {
        Role::Tool => message.results().map(|result| result.text()).collect(),
        _ => message.text(),
    };
    history.messages.iter().map(text).filter(|text: &String| !text.is_empty()).collect()
}

/// Returns the number of bytes that this process has passed to write operations.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").expect("Linux");
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.expect("the line").parse().expect("a number")
}

#[test]
#[ignore = "the child of other tests"]
fn a_child() {
    let Some(folder) = env::var_os("TOWER_CHAT_LONG_RUN") else { return };
    let folder = Path::new(&folder);
    let task = Task::of(&env::var("TOWER_CHAT_LONG_RUN_TASK").expect("a task"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let bytes = runtime.expect("a runtime").block_on(execute(task, folder));
    let lines: Vec<String> = bytes.iter().map(u64::to_string).collect();
    fs::write(folder.join("bytes"), lines.join("\n")).expect("the disk has room");
}

/// Executes the run, or continues it. Returns the bytes that were written before each service call,
/// and before the end.
async fn execute(task: Task, folder: &Path) -> Vec<u64> {
    let store = open(folder).await;
    let bytes: Arc<Mutex<Vec<u64>>> = Arc::default();
    let model = ScriptedModel::new((0..task.calls).map(|_| {
        let bytes = bytes.clone();
        Step::respond(move |request| {
            bytes.lock().expect("no panic").push(written());
            let answered = request.messages().iter().filter(|it| it.role == Role::Assistant);
            let call = answered.count();
            let mut answer = Message::assistant(text("answer", call));
            if call + 1 < task.calls {
                let asked = ToolCall::new(format!("c{call}"), "read", format!("[{call}]"));
                answer.parts.push(asked.into());
            }
            Step::answer([answer], Finish::stop())
        })
    }));
    let definition = ToolDefinition::new("read", "Reads a page.", json!({"type": "object"}));
    let read = tool_fn(definition.safe_to_retry(), |context| {
        let [page]: [usize; 1] = serde_json::from_str(context.arguments()).expect("a page");
        async move { Ok(ToolOutput::from(text("result", page))) }
    });
    let tool_loop = ToolLoopLayer::new(Tools::new().with(read)).unlimited_rounds();
    // The lease of a killed process has ended by the clock of the next process.
    let ahead = Duration::from_secs(3_600) * task.attempt;
    let above = PerRunPersistence::new(store.clone())
        .mode(task.mode)
        .clock(Clock::new(move || SystemTime::now() + ahead));
    let below = PerServiceCallPersistence::new(store.clone()).layer(model);
    let run = RunId::from_bytes([1, 2, 3, 4, 5, 6, 0x77, 8, 0x89, 10, 11, 12, 13, 14, 15, 16]);
    let request = ChatRequest::user("Read the book.").in_run(Conversation { key: key(), run });
    let response = above.layer(tool_loop.layer(below)).oneshot(request).await;
    response.expect("the run continues").collect().await.expect("the run ends");
    bytes.lock().expect("no panic").push(written());
    store.close().await.expect("the store closes");
    std::mem::take(&mut *bytes.lock().expect("no panic"))
}

/// Checks the stored messages. Returns the number of their texts. A missing result of an
/// interrupted call counts as a text. Each kill may interrupt at most one call.
fn check(folder: &Path, Task { mode, calls, attempt }: Task, context: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = open(folder).await;
        let history = store.load(&key()).await.expect("the history is readable");
        let mut all = history.messages.clone();
        if let Some(open) = store.open_run(&key()).await.expect("the open run is readable") {
            all.extend(open.messages);
        }
        let mut replay = Replay::new(DanglingCalls::default());
        replay.push_from(&all, 0);
        let sent = replay.view();
        if let Err(invalid) = validate_messages(sent.iter().map(|message| &**message)) {
            panic!("{context}: {invalid}");
        }
        let stored = texts(&History::new(history.head.clone(), all));
        store.close().await.expect("the store closes");
        let heads: Vec<_> = stored.iter().map(|text| &text[..text.len().min(12)]).collect();
        let mut next = stored.iter().peekable();
        let (mut count, mut missing) = (0, 0);
        for expected in all_texts(calls) {
            if next.peek().is_none() {
                break;
            }
            let is_stored = next.next_if(|text| **text == expected).is_some();
            if !is_stored {
                assert!(expected.starts_with("result"), "{context}: the texts are {heads:?}");
                missing += 1;
            }
            count += 1;
        }
        assert_eq!(next.next(), None, "{context}: the texts are {heads:?}");
        let may_miss = if mode == PerServiceCall { attempt } else { 0 };
        assert!(missing <= may_miss, "{context}: {missing} of the texts are missing: {heads:?}");
        count
    })
}

fn calls() -> usize {
    variable("TOWER_CHAT_CALLS").unwrap_or(CALLS).max(4)
}

/// Executes the run without a kill. Returns the time, and the bytes of each service call.
fn uninterrupted(mode: PersistenceMode, calls: usize) -> (Duration, Vec<u64>) {
    let folder = TempDir::new().expect("a folder");
    let began = Instant::now();
    let task = Task { mode, calls, attempt: 0 };
    let status = task.start(folder.path()).wait().expect("it ends");
    let took = began.elapsed();
    assert!(status.success(), "{mode:?}: the child failed");
    assert_eq!(check(folder.path(), task, "uninterrupted"), 2 * calls, "{mode:?}");
    let bytes = fs::read_to_string(folder.path().join("bytes")).expect("the child has reported");
    let bytes: Vec<u64> = bytes.lines().map(|line| line.parse().expect("a number")).collect();
    (took, bytes.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

#[test]
fn the_bytes_of_a_service_call_do_not_depend_on_the_earlier_service_calls() {
    let calls = calls();
    for mode in [PerRun, PerServiceCall, Journaled] {
        let (_, bytes) = uninterrupted(mode, calls);
        let quarter = calls / 4;
        let sum = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64;
        // A checkpoint copies the log of many service calls, so the median is compared.
        let median = |bytes: &[u64]| {
            let mut sorted = bytes.to_vec();
            sorted.sort_unstable();
            sorted[sorted.len() / 2] as f64
        };
        let (first, last) = (median(&bytes[..quarter]), median(&bytes[calls - quarter..]));
        let content: usize = all_texts(calls).iter().map(String::len).sum();
        let factor = sum(&bytes) / content as f64;
        println!("{mode:?}: {factor:.2} times the texts; growth {:.2}", last / first);
        assert!(factor < FACTOR, "{mode:?}: {factor} times the texts are written");
        // In per-run mode, the end of the run stores all messages.
        assert!(mode == PerRun || last / first <= GROWTH, "{mode:?}: {bytes:?}");
    }
}

#[test]
fn a_run_that_is_killed_at_any_moment_continues_and_stores_each_text_once() {
    let (calls, seed) = (calls(), variable("TOWER_CHAT_SEED").unwrap_or(SEED));
    let kills = variable("TOWER_CHAT_KILLS").unwrap_or(KILLS);
    for (number, mode) in [PerRun, PerServiceCall, Journaled].into_iter().enumerate() {
        let (took, _) = uninterrupted(mode, calls);
        let mut rng = Rng::of(seed, number as u64);
        let (mut killed, mut runs) = (0, 0);
        while killed < kills {
            let folder = TempDir::new().expect("a folder");
            let mut attempt = 0;
            loop {
                let task = Task { mode, calls, attempt };
                let mut child = task.start(folder.path());
                // Some children are not killed, so that the run ends.
                let is_killed = killed < kills && !rng.one_in(6);
                if is_killed {
                    let percent = u32::try_from(rng.below(100)).expect("small");
                    thread::sleep(took * percent / 100);
                    child.kill().expect("the child is killed");
                }
                let status = child.wait().expect("it ends");
                let context = format!("{mode:?}, seed {seed}, run {runs}, attempt {attempt}");
                if status.success() {
                    assert_eq!(check(folder.path(), task, &context), 2 * calls, "{context}");
                    break;
                }
                assert!(is_killed, "{context}: the child failed");
                (killed, attempt) = (killed + 1, attempt + 1);
                check(folder.path(), Task { attempt, ..task }, &context);
            }
            runs += 1;
        }
        println!("{mode:?}: {killed} kills in {runs} runs of {calls} service calls");
    }
}
