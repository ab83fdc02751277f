//! Tests `tower-chat export`.

use crate::support::*;
use serde_json::json;
use tower_chat::{
    ConversationKey, HistoryStore, Message, Part, PersistenceMode, Role, ToolCall, ToolResult,
    message::MessageId,
    run::RunId,
    store::{Revision, author::Write},
    tool::ApprovalRequest,
};
use tower_chat_sqlite::SqliteStore;

fn fill(store: &Store, conversations: &[(&str, &str, Vec<Message>)]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let opened = SqliteStore::open(store.path()).await.unwrap();
        for (scope, id, messages) in conversations {
            let first = MessageId { run: RunId::new(), index: 0 };
            let messages = messages.iter().cloned().map(Into::into);
            let key = ConversationKey::new(*scope, *id);
            let write = Write::new(key, first, Revision::ABSENT, messages);
            opened.append(opened.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
        opened.close().await.unwrap();
    });
}

#[test]
fn all_conversations_are_exported_once_and_a_scope_can_be_selected() {
    let store = Store::new();
    let message = || vec![Message::user("hi")];
    fill(
        &store,
        &[
            ("b", "z", message()),
            ("b", "a", message()),
            ("a", "é", message()),
            ("a", "Z", message()),
            ("c", "m", message()),
        ],
    );
    let ids = |more: &[&str]| export(&store.argument(), more).into_keys().collect::<Vec<_>>();
    assert_eq!(ids(&[]), ["Z", "a", "m", "z", "é"]);
    assert_eq!(ids(&["--scope", "b"]), ["a", "z"]);
    assert!(ids(&["--scope", "nobody"]).is_empty());
}

#[test]
fn each_exported_line_names_scope_and_id_and_both_can_be_selected() {
    let store = Store::new();
    let texts = |text: &str| vec![Message::user(text)];
    fill(
        &store,
        &[
            ("b", "same", texts("one")),
            ("a", "same", texts("two")),
            ("a", "other", texts("three")),
            ("a same", "", texts("four")),
        ],
    );
    let lines = |more: &[&str]| -> Vec<(String, String, String)> {
        let text = export_text(&store.argument(), more);
        let lines =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let texts = |line: serde_json::Value| {
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            (text(&line["scope"]), text(&line["id"]), text(&line["messages"][0]["content"]))
        };
        lines.map(texts).collect()
    };
    let line = |scope: &str, id: &str, text: &str| (scope.into(), id.into(), text.into());
    let all = [
        line("a same", "", "four"),
        line("a", "other", "three"),
        line("a", "same", "two"),
        line("b", "same", "one"),
    ];
    assert_eq!(lines(&[]), all);
    assert_eq!(lines(&["--conversation", "same"]), all[2..]);
    assert_eq!(lines(&["--conversation", "same", "--scope", "b"]), all[3..]);
    assert_eq!(lines(&["--conversation", ""]), all[..1]);
    assert_eq!(lines(&["--conversation", "sam"]), []);
}

#[test]
fn an_export_of_several_pages_contains_each_conversation_once() {
    let store = Store::new();
    let ids: Vec<String> = (0..1050).map(|number| format!("c{number:05}")).collect();
    let all: Vec<_> =
        ids.iter().map(|id| ("play", id.as_str(), vec![Message::user("hi")])).collect();
    fill(&store, &all);
    assert_eq!(export(&store.argument(), &[]).into_keys().collect::<Vec<_>>(), ids);
}

#[test]
fn a_record_export_has_all_messages_and_a_plain_export_those_sent_to_a_model() {
    let store = Store::new();
    let waiting = ApprovalRequest::new("a1", ToolCall::new("c9", "pay", "{\"sum\":1}"), true);
    let messages = vec![
        Message::user("go"),
        Message::tool_calls([
            ToolCall::new("c1", "look", "{}"),
            ToolCall::new("c2", "weigh", "{}"),
        ]),
        Message::tool_results([ToolResult::error("c2", "too heavy")]),
        Message::user("pay"),
        Message::new(Role::Assistant, vec![Part::text("May I?"), Part::ApprovalRequest(waiting)]),
    ];
    fill(&store, &[("play", "x", messages)]);
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let result =
        json!({"role": "tool", "tool_call_id": "c2", "content": "too heavy", "x_error": true});
    assert_eq!(
        export(&store.argument(), &[])["x"],
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [call("c2", "weigh")]},
            result,
            {"role": "user", "content": "pay"},
            {"role": "assistant", "content": "May I?"},
        ])
    );
    assert_eq!(
        export(&store.argument(), &["--record"])["x"],
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [call("c1", "look"), call("c2", "weigh")]},
            result,
            {"role": "user", "content": "pay"},
            {"role": "assistant", "content": "May I?", "x_parts": [{"approval_request": {
                "id": "a1",
                "call": {"id": "c9", "name": "pay", "arguments": "{\"sum\":1}"},
                "required": true,
            }}]},
        ])
    );
}

#[test]
fn only_a_record_export_contains_a_dangling_call() {
    let store = Store::new();
    let call = ToolCall::new("1", "look", "{");
    fill(&store, &[("play", "x", vec![Message::user("go"), Message::tool_calls([call])])]);
    let (shown, record) =
        (export(&store.argument(), &[]), export(&store.argument(), &["--record"]));
    let question = json!({"role": "user", "content": "go"});
    let call =
        json!({"id": "1", "type": "function", "function": {"name": "look", "arguments": "{"}});
    let asks = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    assert_eq!(shown["x"], json!([question]));
    assert_eq!(record["x"], json!([question, asks]));
}

#[test]
fn an_export_does_not_change_the_store() {
    let store = Store::new();
    fill_runs(&store, 20, PersistenceMode::Journaled);
    let before = std::fs::read(store.path()).unwrap();
    let (first, second) =
        (export_text(&store.argument(), &[]), export_text(&store.argument(), &[]));
    assert_eq!(first, second);
    assert_eq!(std::fs::read(store.path()).unwrap(), before);
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_signal_ends_an_export_at_once() {
    use std::{
        io::Read,
        os::unix::process::ExitStatusExt,
        process::{Command, Stdio},
    };
    let store = Store::new();
    let text = "a long message ".repeat(1000);
    let all: Vec<_> = (0..40).map(|number| format!("c{number}")).collect();
    let all: Vec<_> =
        all.iter().map(|id| ("play", id.as_str(), vec![Message::user(&*text)])).collect();
    fill(&store, &all);
    let before = std::fs::read(store.path()).unwrap();
    // A shell may have made the test ignore the signal, which the command would inherit.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_tower-chat")]);
    command.args(["export", "--store", &store.argument()]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // The export is larger than the buffer of the pipe. The command therefore waits for its reader.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(2), "shells say 130");
    assert_eq!(std::fs::read(store.path()).unwrap(), before);
}
