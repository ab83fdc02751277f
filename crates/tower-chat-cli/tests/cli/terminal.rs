//! Tests that texts from users, models and files are escaped on a terminal.

use std::{process::Output, time::SystemTime};

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, HistoryStore, Message, ToolCall,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd,
        author::{Staged, Write},
    },
};
use tower_chat_sqlite::SqliteStore;

use crate::support::*;

/// A text that, without escaping, would clear the screen, set the title, imitate a line of the
/// output, overwrite a line, and change the text direction. The text also contains invisible
/// characters: a zero-width space, tags, a soft hyphen and a variation selector.
const HOSTILE: &str = "id\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\nall is well: 9\rdone\u{202e}\u{2028}\
                       \u{200b}\u{e0041}\u{ad}\u{e0100}";
const SCOPE: &str = "scope\u{1b}[8m";
const TOOL: &str = "look\u{1b}]8;;http://evil\u{7}\nfree";

/// Returns a store whose ids, names and calls contain [`HOSTILE`]. One call has no result.
fn hostile_store() -> Store {
    let store = Store::new();
    let messages = vec![
        Message::user("first question"),
        Message::assistant("first answer"),
        Message::user("second question"),
        Message::tool_calls([ToolCall::new("call\u{1b}[1m", TOOL, "{}")]),
    ];
    let records = tower_chat_repair::extract(&messages.iter().cloned().collect(), 1, 0);
    fill_recorded(&store, SCOPE, HOSTILE, messages, records);
    store
}

/// Appends another run to the hostile conversation, so that `prune` can delete a run.
fn append_a_run(store: &Store) {
    let key = ConversationKey::new(SCOPE, HOSTILE);
    append(store, &key, |write| write, "third question");
}

fn open_a_run(store: &Store) {
    let lease = Lease {
        attempt: 1,
        holder: 7,
        renewed_at: SystemTime::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let staged = Staged { lease, close: None, service_id: None, partial_text: None };
    let key = ConversationKey::new(SCOPE, format!("{HOSTILE} open"));
    append(store, &key, |write| write.staged(staged), "an open question");
}

fn append(
    store: &Store,
    key: &ConversationKey,
    as_one_of: impl FnOnce(Write) -> Write,
    text: &str,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let opened = SqliteStore::open(store.path()).await.unwrap();
        let id = MessageId { run: RunId::new(), index: 0 };
        let revision = opened.head(key).await.unwrap().revision;
        let write = Write::new(key.clone(), id, revision, [Message::user(text).into()]);
        opened.append(opened.reserve().await.unwrap(), vec![as_one_of(write)]).await.unwrap();
        opened.close().await.unwrap();
    });
}

#[track_caller]
fn assert_harmless(output: &Output, arguments: &[&str]) -> String {
    let printed = format!("{}{}", stdout(output), stderr(output));
    let obeyed = |character: &char| {
        (character.is_control() && *character != '\n')
            || matches!(character, '\u{202e}' | '\u{2028}' | '\u{200b}' | '\u{ad}')
            || ('\u{e0000}'..='\u{e0fff}').contains(character)
    };
    assert_eq!(printed.chars().find(obeyed), None, "{arguments:?} printed {printed:?}");
    let forged = printed.lines().find(|line| line.starts_with("all is well: 9"));
    assert_eq!(forged, None, "{arguments:?} printed {printed:?}");
    printed
}

#[test]
fn printed_text_contains_no_terminal_commands() {
    let store = hostile_store();
    append_a_run(&store);
    open_a_run(&store);
    let at = store.argument();
    let run_on = |arguments: &[&str]| {
        let arguments = [arguments, &["--store", &at]].concat();
        assert_harmless(&run(&arguments), &arguments)
    };
    for (arguments, named) in [
        (&["verify"][..], r"conversation scope\u{1b}[8m/id\u{1b}[2J"),
        (&["list"], r"scope\u{1b}[8m  id\u{1b}[2J"),
        (&["show", SCOPE, HOSTILE], r"call look\u{1b}]8;;http://evil\u{7}\nfree (call\u{1b}[1m)"),
        (&["usage", "--by", "conversation"], r"scope\u{1b}[8m  id\u{1b}[2J"),
        (&["runs", SCOPE, HOSTILE], "mode"),
        (&["tools"], r"look\u{1b}]8;;http://evil\u{7}\nfree"),
        (&["tools", "--list"], r"scope\u{1b}[8m/id\u{1b}[2J"),
        (&["runs"], r"id\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\nall is well: 9\rdone"),
        (&["repair", "--dry-run"], r"conversation scope\u{1b}[8m/id"),
        (&["prune", "--keep-messages", "1", "--dry-run"], r"scope\u{1b}[8m/id\u{1b}[2J"),
        (
            &["recover", "--end", "discard"],
            r"\u{202e}\u{2028}\u{200b}\u{e0041}\u{ad}\u{e0100} open: run",
        ),
        (&["repair"], r"conversation scope\u{1b}[8m/id"),
        (&["prune", "--keep-messages", "1"], r"scope\u{1b}[8m/id\u{1b}[2J"),
    ] {
        let printed = run_on(arguments);
        assert!(printed.contains(named), "{arguments:?} printed {printed}");
    }
}

#[test]
fn error_messages_contain_no_terminal_commands() {
    let store = hostile_store();
    assert_eq!(replace_stored(&store.path(), "first answer", "\u{1b}[5m\" damaged"), 1);
    let at = store.argument();
    for command in ["export", "verify", "repair"] {
        let arguments = [command, "--store", &at];
        let printed = assert_harmless(&run(&arguments), &arguments);
        assert!(printed.contains(r"scope\u{1b}[8m/id\u{1b}[2J"), "{command} printed {printed}");
    }
}

#[test]
fn json_output_contains_the_exact_stored_texts() {
    let store = hostile_store();
    let at = store.argument();
    assert!(export(&at, &[]).contains_key(HOSTILE));
    let output = run(&["tools", "--list", "--json", "--store", &at]);
    let listed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let call = &listed["calls"][0];
    assert_eq!((&call["conversation"], &call["scope"]), (&json!(HOSTILE), &json!(SCOPE)));
    assert_eq!((&call["name"], &call["call_id"]), (&json!(TOOL), &json!("call\u{1b}[1m")));
    open_a_run(&store);
    let output = run(&["runs", "--json", "--store", &at]);
    let listed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(listed["conversation"], json!(format!("{HOSTILE} open")));
}
