//! What is repaired, and what is left.

use std::process::Stdio;

use serde_json::{Value, json};
use tower_chat::{Message, ToolResult};

use crate::support::*;

/// The exit code, and the lines of the output.
fn command(name: &str, store: &Store, more: &[&str]) -> (i32, Vec<String>) {
    let output = run(&[&[name, "--store", &store.argument()], more].concat());
    assert_eq!(stderr(&output), "");
    (output.status.code().unwrap(), stdout(&output).lines().map(str::to_owned).collect())
}

/// The results that a model is shown of a conversation.
fn results(store: &Store, id: &str) -> Vec<String> {
    let exported = export(&store.argument(), &[]);
    let messages = exported[id].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

const INTERRUPTED: &str = tower_chat::replay::repair::INTERRUPTED;

#[test]
fn a_repair_is_durable_and_the_second_changes_nothing() {
    let store = Store::new();
    fill_intact(&store);
    fill_repairable(&store);
    let before = dump(&store.path());
    let intact = export(&store.argument(), &["--record"]);

    let (code, planned) = command("repair", &store, &["--dry-run"]);
    assert_eq!((code, planned.len()), (1, 9), "{planned:?}");
    assert_eq!(planned[8], "8 to repair, 0 that cannot be repaired");
    assert_eq!(dump(&store.path()), before, "a dry run writes nothing");

    let (code, done) = command("repair", &store, &[]);
    assert_eq!((code, &done[..8]), (0, &planned[..8]));
    assert_eq!(done[8], "8 repaired, 0 left");
    let (code, lines) = command("verify", &store, &[]);
    assert_eq!(code, 0, "{lines:?}");

    let after = dump(&store.path());
    for again in [&["--dry-run"][..], &[]] {
        let nothing = vec!["nothing to repair".to_owned()];
        assert_eq!(command("repair", &store, again), (0, nothing));
        assert_eq!(dump(&store.path()), after);
    }
    assert_eq!(results(&store, "dangling"), [INTERRUPTED, "two", INTERRUPTED]);
    assert_eq!(results(&store, "recorded"), [] as [&str; 0], "it is in the record alone");
    assert_eq!(results(&store, "results"), ["found"]);
    let record = export(&store.argument(), &["--record"]);
    for id in ["sound", "waiting"] {
        assert_eq!(record[id], intact[id]);
    }
}

#[test]
fn the_record_of_tool_calls_says_where_the_results_are_now() {
    let store = Store::new();
    fill_repairable(&store);
    assert_eq!(command("repair", &store, &[]).0, 0);
    let output = run(&["tools", "--json", "--list", "--store", &store.argument()]);
    assert_eq!(stderr(&output), "");
    let calls: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let listed: Vec<Value> = calls["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| json!([call["conversation"], call["message"], call["status"], call["result"]]))
        .collect();
    assert_eq!(
        listed,
        [
            json!(["dangling", 2, "interrupted", INTERRUPTED]),
            json!(["dangling", 2, "ok", "two"]),
            json!(["dangling", 5, "interrupted", INTERRUPTED]),
            json!(["recorded", 2, "ok", "from the record"]),
            json!(["results", 3, "ok", "found"]),
            json!(["rows", 2, "ok", "found"]),
        ]
    );
}

#[test]
fn results_out_of_the_way_are_not_lost() {
    let store = Store::new();
    fill_repairable(&store);
    assert_eq!(command("repair", &store, &[]).0, 0);
    let bodies = dump(&store.path());
    for text in ["an orphan", "in front", "again"] {
        assert_eq!(bodies.iter().filter(|row| row.contains(text)).count(), 1, "{text}");
    }
}

#[test]
fn unreadable_rows_are_unchanged_and_the_rest_is_repaired() {
    let store = Store::new();
    fill_unreadable(&store);
    let unreadable = dump(&store.path());
    fill_repairable(&store);
    let (code, lines) = command("repair", &store, &[]);
    assert_eq!(code, 1);
    assert_eq!(lines.last().unwrap(), "8 repaired, 4 left");
    let left: Vec<&String> = lines.iter().filter(|line| line.contains("left as it is")).collect();
    assert_eq!(left.len(), 4, "{lines:?}");
    let after = dump(&store.path());
    assert!(unreadable.iter().all(|row| after.contains(row)));
    let (code, problems) = command("verify", &store, &[]);
    assert_eq!((code, problems.len()), (1, 5), "{problems:?}");
    let (code, again) = command("repair", &store, &[]);
    assert_eq!((code, again.last().unwrap().as_str()), (1, "0 repaired, 4 left"));
    assert_eq!(dump(&store.path()), after);
}

#[test]
fn a_repair_that_is_killed_leaves_each_conversation_as_it_was_or_repaired() {
    const CONVERSATIONS: usize = 150;
    let store = Store::new();
    let ids: Vec<String> = (0..CONVERSATIONS).map(|number| format!("c{number:03}")).collect();
    let messages = || {
        vec![
            Message::user("go"),
            Message::tool_calls([call("c1")]),
            Message::tool_results([ToolResult::new("gone", "an orphan")]),
            Message::tool_calls([call("c2")]),
        ]
    };
    fill_many(&store, &ids, messages);
    let repaired = || {
        let lines = command("verify", &store, &[]).1;
        let problems = |id: &String| lines.iter().filter(|line| line.contains(id.as_str())).count();
        ids.iter()
            .filter(|id| match problems(id) {
                0 => true,
                3 => false,
                some => panic!("{some} problems of {id}: {lines:?}"),
            })
            .count()
    };
    assert_eq!(repaired(), 0);
    let mut kills_between = 0;
    for step in [1, 40, 80, 120] {
        let mut child = tower_chat(&["repair", "--store", &store.argument()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while count_messages_with(&store.path(), INTERRUPTED) < step * 2
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let now = repaired();
        assert!(now >= step);
        kills_between += usize::from(now < CONVERSATIONS);
    }
    assert!(kills_between > 0, "no kill came before the end");
    assert_eq!(command("repair", &store, &[]).0, 0);
    assert_eq!(command("verify", &store, &[]).0, 0);
}
