//! Tests that the command reports input that cannot be played, and stores nothing of this input.

use std::{fs, process::Stdio};

use serde_json::json;

use crate::support::*;

fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let printed = stderr(&output);
    assert!(!printed.is_empty() && !printed.contains("panicked"), "{printed}");
    printed
}

const GREETING: &str = r#"{"id":"greeting","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]}"#;

#[test]
fn arguments_that_the_command_does_not_accept_are_refused() {
    let file = shapes();
    for arguments in [
        &[][..],
        &[&file[..]],
        &["--store", "memory:"],
        &[&file[..], "--store", "memory"],
        &[&file[..], "--store", "sqlite:"],
        &[&file[..], "--store", "postgres://localhost"],
        &[&file[..], "--store", "memory:", "--concurrency", "0"],
        &[&file[..], "--store", "memory:", "--concurrency", "-1"],
        &[&file[..], "--store", "memory:", "--persistence", "never"],
        &[&file[..], "--store", "memory:", "--verify", "--no-verify"],
        &[&file[..], "--store", "memory:", "--loud"],
        &[&file[..], &file, "--store", "memory:"],
    ] {
        refused(arguments);
    }
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("Exit codes: 0, played as recorded"));
}

#[test]
fn an_empty_file_plays_no_conversations() {
    let store = Store::new();
    for text in ["", "\n", "  \n\r\n"] {
        let file = store.file("empty.jsonl", text);
        let summary = play_well(&[&file, "--store", &store.argument(), "--resume"]);
        assert_eq!(summary["conversations"], 0);
    }
    assert!(store.export().is_empty());
}

#[test]
fn an_invalid_line_is_reported_and_nothing_is_written() {
    let store = Store::new();
    for (line, why) in [
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        (r#"{"messages": []}"#, "missing field `id`"),
        (r#"{"id": "x"}"#, "missing field `messages`"),
        (r#"{"id": null, "messages": []}"#, "neither a text nor a number"),
        (r#"{"id": ["x"], "messages": []}"#, "neither a text nor a number"),
        (r#"{"id": "x", "messages": {}}"#, "not a JSON object"),
        (r#"{"id": "x", "messages": [{"role": "user", "content": "hi"}, 1]}"#, "its message 1"),
        (r#"{"id": "x", "messages": [{"content": "hi"}]}"#, "the role of a message is missing"),
        (
            r#"{"id": "x", "messages": [{"role": "bystander", "content": "hi"}]}"#,
            "no role \"bystander\"",
        ),
        (r#"{"id": "greeting", "messages": []}"#, "also that of line 1"),
    ] {
        let file = store.file("wrong.jsonl", &format!("{GREETING}\n\n{line}\n"));
        let printed = refused(&[&file, "--store", &store.argument()]);
        assert!(printed.contains("wrong.jsonl") && printed.contains("line 3"), "{printed}");
        assert!(printed.contains(why), "{printed}");
        assert!(!store.path().exists());
    }
    let file = store.folder().join("binary.jsonl");
    fs::write(&file, [GREETING.as_bytes(), b"\n\xff\xfe\n"].concat()).unwrap();
    let printed = refused(&[&file.display().to_string(), "--store", &store.argument()]);
    assert!(printed.contains("line 2 is not UTF-8"), "{printed}");
    refused(&["no/such/file.jsonl", "--store", &store.argument()]);
    refused(&[&store.folder().display().to_string(), "--store", &store.argument()]);
    assert!(!store.path().exists());
}

#[test]
fn a_play_with_an_already_stored_conversation_is_refused_before_any_write() {
    let store = Store::new();
    let file = store.file("one.jsonl", GREETING);
    play_well(&[&file, "--store", &store.argument()]);
    let before = store.contents();
    let more = GREETING.replace("greeting", "another");
    let file = store.file("two.jsonl", &format!("{more}\n{GREETING}\n"));
    let printed = refused(&[&file, "--store", &store.argument()]);
    assert!(printed.contains("\"greeting\"") && printed.contains("--resume"), "{printed}");
    assert_eq!(store.contents(), before);
}

#[test]
fn a_path_that_is_not_a_store_is_refused_and_not_changed() {
    let store = Store::new();
    let file = store.file("one.jsonl", GREETING);
    let notes = store.file("notes.txt", &"these are notes, and no database\n".repeat(100));
    for (path, why) in [
        (store.folder().display().to_string(), ""),
        (notes, "not a SQLite database"),
        (store.folder().join("no/folder.db").display().to_string(), "does not exist"),
    ] {
        let before = fs::read(&path).ok();
        let printed = refused(&[&file, "--store", &format!("sqlite:{path}")]);
        assert!(printed.contains(why) && printed.contains(&path), "{printed}");
        assert_eq!(fs::read(&path).ok(), before, "{path}");
    }
}

#[test]
fn the_printed_errors_contain_no_terminal_commands() {
    let store = Store::new();
    let question = json!({"role": "user", "content": "played question"});
    let answer = json!({"role": "assistant", "content": "played answer"});
    let line = json!({"id": "id\u{1b}[2J", "messages": [question, answer]});
    let file = store.file("hostile.jsonl", &format!("{line}\n"));
    play_well(&[&file, "--store", &store.argument()]);
    let harmless = |arguments: &[&str]| {
        let output = run(arguments);
        assert_ne!(output.status.code(), Some(0));
        let printed = format!("{}{}", stdout(&output), stderr(&output));
        let is_obeyed = |it: char| it.is_control() && it != '\n';
        assert!(!printed.contains(is_obeyed), "{printed:?}");
        assert!(printed.contains(r"id\u{1b}[2J"), "{printed}");
    };
    harmless(&[&file, "--store", &store.argument()]);
    assert_eq!(replace_stored(&store.path(), "played question", "\u{9b}31m other"), 1);
    harmless(&[&file, "--store", &store.argument(), "--resume"]);
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let store = Store::new();
    let file = store.file("many.jsonl", &many_shapes(10));
    let mut altered = recorded(&file);
    let argument = store.argument();
    play_well(&[&file, "--store", &argument]);
    for (_, line) in &mut altered {
        if let Some(message) = line["messages"].get_mut(0) {
            message["content"] = "something else".into();
        }
    }
    let altered: String = altered.iter().map(|(_, line)| format!("{line}\n")).collect();
    let altered = store.file("altered.jsonl", &altered);
    for (arguments, code) in [
        (&[&altered[..], "--store", &argument, "--resume"][..], 1),
        (&[&file[..], "--store", "memory:"], 0),
    ] {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(code), ""));
    }
}
