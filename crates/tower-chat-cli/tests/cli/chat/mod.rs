//! Tests `tower-chat chat` with a real MCP server, and with a local HTTP server instead of a
//! provider.

mod approvals;
mod attach;
mod crashes;
mod failures;
mod guide;
mod interrupts;
mod providers;
mod secrets;
mod streams;
mod terminal;
mod tools;

use std::{path::PathBuf, process::Command};

use tower_chat::store::Directory;
use tower_chat::{
    replay::{DanglingCalls, Replay},
    validate::validate_messages,
};
use tower_chat_repair::mismatches;

use crate::support::*;

/// The environment variables that may contain keys of providers.
const KEYS: [&str; 15] = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "VERTEX_API_KEY",
    "VERTEX_PROJECT_ID",
    "BEDROCK_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "COHERE_API_KEY",
    "MISTRAL_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "OPEN_ROUTER_API_KEY",
    "XAI_API_KEY",
];

/// Returns the command for a chat whose provider is the local server.
fn chat(store: &TestStore, server: &ModelServer, arguments: &[&str]) -> Command {
    let url = format!("{}/v1", server.url);
    let asks = ["--provider", "openai", "--base-url", &url];
    chat_with(store, &[arguments, &asks].concat())
}

fn chat_with(store: &TestStore, arguments: &[&str]) -> Command {
    let settings = ["--model", "gpt-test", "--scope", "harbour"];
    let mut command = store.command(&[&["chat"], arguments, &settings].concat());
    for name in KEYS {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1");
    command
}

/// Returns the value of `--mcp` for the test server, which logs its calls to a file.
fn harbour(store: &TestStore) -> String {
    format!("'{}' '{}'", built("mcp_harbour").display(), log_path(store).display())
}

fn log_path(store: &TestStore) -> PathBuf {
    store.folder().join("harbour.log")
}

fn log(store: &TestStore) -> Vec<String> {
    let text = std::fs::read_to_string(log_path(store)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the log of the test server has `lines` lines.
#[track_caller]
fn wait_for_log(store: &TestStore, lines: usize) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while log(store).len() < lines {
        assert!(std::time::Instant::now() < end, "the server did only {:?}", log(store));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Returns the path of the executable of an example.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("examples");
    folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Formats visible messages as role and parts: a call as `name(arguments)`, a result as `=text`, a
/// request for approval as `?name`, and a decision as `!true`.
fn stored(store: &TestStore, id: &str) -> Vec<String> {
    use tower_chat::Part;
    let key = tower_chat::ConversationKey::new("harbour", id);
    let history = store.with(|opened| async move { opened.load(&key).await.unwrap() });
    let line = |message: &std::sync::Arc<tower_chat::Message>| {
        let part = |part: &Part| match part {
            Part::Text(text) => text.text.clone(),
            Part::ToolCall(call) => format!("{}({})", call.name, call.arguments),
            Part::ToolResult(result) => format!("={}", result.text()),
            Part::ApprovalRequest(request) => format!("?{}", request.call.name),
            Part::ApprovalResponse(response) => format!("!{}", response.approved),
            other => format!("{other:?}"),
        };
        let parts: String = message.parts.iter().map(part).collect();
        format!("{}: {parts}", format!("{:?}", message.role).to_lowercase())
    };
    history.messages.iter().map(line).collect()
}

fn title(store: &TestStore, id: &str) -> Option<String> {
    let key = tower_chat::ConversationKey::new("harbour", id);
    let summary = store.with(|opened| async move { opened.summary(&key).await.unwrap() });
    summary.unwrap().description.title().map(str::to_owned)
}

/// Asserts that the stored conversations have no problems, and that no run is open.
#[track_caller]
fn assert_intact(store: &TestStore) {
    let output = store.run(&["runs"]);
    assert_eq!(stdout(&output), "no open runs\n");
    if let Kind::Sqlite | Kind::Encrypted = store.kind {
        let output = store.run(&["verify"]);
        let code = output.status.code();
        assert_eq!(code, Some(0), "{:?}: {}{}", store.kind, stdout(&output), stderr(&output));
        return;
    }
    // The messages of a store on a server are checked here instead of by `verify`: every call must
    // have its result, and the replayed messages must be valid in a request.
    store.with(|opened| async move {
        for key in opened.list("harbour", None, 1000).await.unwrap() {
            let messages = opened.load(&key).await.unwrap().messages;
            assert_eq!(mismatches(&messages, 1), [], "{key}");
            let mut replay = Replay::new(DanglingCalls::Drop);
            replay.push_from(&messages, 0);
            let shown = replay.view();
            validate_messages(shown.iter().map(|message| &**message)).unwrap();
        }
    });
}

/// Replaces the durations and dates in a text, because these differ each time the test runs.
fn without_times(text: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_start_matches('(');
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let masked = words.iter().enumerate().map(|(index, word)| {
            let unit = words.get(index + 1).map(|next| next.trim_end_matches([')', ':']));
            match is_number(word) && matches!(unit, Some("ms" | "s")) {
                true => {
                    word.replace(|it: char| it.is_ascii_digit() || it == '.', "").to_owned() + "N"
                }
                false => (*word).to_owned(),
            }
        });
        masked.collect::<Vec<String>>().join(" ").replace(" s)", " ms)")
    };
    text.lines().map(line).collect::<Vec<String>>().join("\n")
}
