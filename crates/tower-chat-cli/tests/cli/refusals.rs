//! Commands that fail report why, and change nothing.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::support::*;

fn refused(arguments: &[&str]) -> String {
    refusal(arguments, &run(arguments))
}

fn refusal(arguments: &[&str], output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(output));
    assert_eq!(stdout(output), "", "{arguments:?}");
    let printed = stderr(output);
    assert!(!printed.is_empty() && !printed.contains("panicked"), "{printed}");
    printed
}

const GREETING: &str = r#"{"id":"greeting","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]}"#;

#[test]
fn wrong_arguments_are_refused() {
    let file = transcript("shapes.jsonl");
    for arguments in [
        &[][..],
        &["sing"],
        &["play"],
        &["play", &file],
        &["play", "--store", "memory:"],
        &["play", &file, "--store", "memory"],
        &["play", &file, "--store", "sqlite:"],
        &["play", &file, "--store", "postgres://localhost"],
        &["play", &file, "--store", "memory:", "--concurrency", "0"],
        &["play", &file, "--store", "memory:", "--concurrency", "-1"],
        &["play", &file, "--store", "memory:", "--persistence", "never"],
        &["play", &file, "--store", "memory:", "--verify", "--no-verify"],
        &["play", &file, "--store", "memory:", "--loud"],
        &["play", &file, &file, "--store", "memory:"],
        &["export"],
        &["export", "--store", "memory:"],
        &["export", "--store", "sqlite:x.db", "--loud"],
    ] {
        refused(arguments);
    }
}

#[test]
fn help_is_there_for_both_commands() {
    for (arguments, printed) in [
        (&["--help"][..], "export"),
        (&["play", "--help"], "Exit codes: 0, played as recorded"),
        (&["export", "--help"], "--record"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains(printed) && stdout(&output).lines().count() < 60);
    }
}

#[test]
fn an_empty_file_plays_no_conversations() {
    let store = Store::new();
    for text in ["", "\n", "  \n\r\n"] {
        let file = store.file("empty.jsonl", text);
        let summary = play_well(&[&file, "--store", &store.argument(), "--resume"]);
        assert_eq!(summary["conversations"], 0);
    }
    assert!(export(&store.argument(), &[]).is_empty());
}

#[test]
fn a_line_that_is_no_recording_is_named_and_nothing_is_written() {
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
        let printed = refused(&["play", &file, "--store", &store.argument()]);
        assert!(printed.contains("wrong.jsonl") && printed.contains("line 3"), "{printed}");
        assert!(printed.contains(why), "{printed}");
        assert!(!store.path().exists());
    }
    let file = store.folder().join("binary.jsonl");
    fs::write(&file, [GREETING.as_bytes(), b"\n\xff\xfe\n"].concat()).unwrap();
    let printed = refused(&["play", &file.display().to_string(), "--store", &store.argument()]);
    assert!(printed.contains("line 2 is not UTF-8"), "{printed}");
    refused(&["play", "no/such/file.jsonl", "--store", &store.argument()]);
    refused(&["play", &store.folder().display().to_string(), "--store", &store.argument()]);
    assert!(!store.path().exists());
}

#[test]
fn a_conversation_that_is_stored_already_stops_everything_before_anything_is_written() {
    let store = Store::new();
    let file = store.file("one.jsonl", GREETING);
    play_well(&[&file, "--store", &store.argument()]);
    let before = export_text(&store.argument(), &["--record"]);
    let more = GREETING.replace("greeting", "another");
    let file = store.file("two.jsonl", &format!("{more}\n{GREETING}\n"));
    let printed = refused(&["play", &file, "--store", &store.argument()]);
    assert!(printed.contains("\"greeting\"") && printed.contains("--resume"), "{printed}");
    assert_eq!(export_text(&store.argument(), &["--record"]), before);
}

#[test]
fn a_path_that_is_no_store_is_refused_and_left_as_it_is() {
    let store = Store::new();
    let file = store.file("one.jsonl", GREETING);
    let notes = store.file("notes.txt", &"these are notes, and no database\n".repeat(100));
    let foreign = store.folder().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    let newer = Store::new();
    play_well(&[&file, "--store", &newer.argument()]);
    make_newer(&newer.path());
    for (path, why) in [
        (store.folder().display().to_string(), ""),
        (notes.clone(), "not a SQLite database"),
        (foreign.display().to_string(), "not a conversation store"),
        (newer.path().display().to_string(), "newer release"),
        (store.folder().join("no/folder.db").display().to_string(), "does not exist"),
    ] {
        let before = fs::read(&path).ok();
        let argument = format!("sqlite:{path}");
        for arguments in
            [&["play", &file, "--store", &argument][..], &["export", "--store", &argument]]
        {
            let printed = refused(arguments);
            assert!(printed.contains(why) && printed.contains(&path), "{printed}");
        }
        assert_eq!(fs::read(&path).ok(), before, "{path}");
    }
}

/// Runs the command as a user without write permission for a read-only file. Root runs it without the
/// capability that would bypass the permission.
#[cfg(unix)]
fn run_held_to(read_only: &Path, arguments: &[&str]) -> Output {
    if fs::OpenOptions::new().append(true).open(read_only).is_err() {
        return run(arguments);
    }
    let command = tower_chat(arguments);
    let mut held = Command::new("setpriv");
    held.args(["--bounding-set", "-dac_override", "--"]).arg(command.get_program());
    held.args(command.get_args()).env_remove("RUST_LOG").stdin(Stdio::null());
    held.output().expect("setpriv runs")
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    let file = store.file("one.jsonl", GREETING);
    play_well(&[&file, "--store", &store.argument()]);
    let beside = Store::new();
    let more = beside.file("more.jsonl", &GREETING.replace("greeting", "another"));
    let permit = |folder: u32, file: u32| {
        fs::set_permissions(store.folder(), fs::Permissions::from_mode(folder)).unwrap();
        fs::set_permissions(store.path(), fs::Permissions::from_mode(file)).unwrap();
    };
    permit(0o500, 0o400);
    let arguments = ["play", &more, "--store", &store.argument()];
    let printed = refusal(&arguments, &run_held_to(&store.path(), &arguments));
    assert!(printed.contains("cannot be written") && printed.contains("--store"), "{printed}");
    permit(0o700, 0o600);
    if cfg!(target_os = "linux") {
        refused(&["play", &more, "--store", "sqlite:/proc/chat.db"]);
    }
}

#[test]
fn ages_have_one_form_and_the_error_says_which() {
    let store = Store::new();
    let prune = ["prune", "--store", &store.argument()];
    let recover = ["recover", "--store", &store.argument(), "--end", "commit"];
    for command in [&prune[..], &recover] {
        for age in ["3600", "1w", "-1h", "1.5h", "h", ""] {
            let option = format!("--older-than={age}");
            let printed = refused(&[command, &[&option]].concat());
            assert!(printed.contains("an age has a unit: 30d, 12h, 15m or 45s"), "{printed}");
            assert!(printed.contains("--older-than <AGE>"), "{printed}");
        }
        let printed = refused(&[command, &["--older-than", "30d"]].concat());
        assert!(printed.contains("there is no conversation store"), "{printed}");
    }
}

#[test]
fn advice_is_given_in_options_of_the_command() {
    let store = Store::new();
    let path = store.path().display().to_string();
    let empty = store.file("empty.db", "");
    for path in [&path, &empty] {
        let argument = format!("sqlite:{path}");
        for command in ["export", "tools", "runs", "verify", "repair", "vacuum"] {
            let printed = refused(&[command, "--store", &argument]);
            let expected = format!(
                "error: there is no conversation store at `{path}`: check the path of --store\n"
            );
            assert_eq!(printed, expected, "{command}");
        }
    }
    assert!(!store.path().exists());
    assert_eq!(fs::read(&empty).unwrap(), b"");
    let printed = refused(&["export", "--store", "memory:"]);
    assert_eq!(
        printed,
        "error: a store in memory has nothing to export: give --store sqlite:PATH\n"
    );
}

#[test]
fn an_export_of_nothing_is_refused_and_makes_nothing() {
    let store = Store::new();
    let printed = refused(&["export", "--store", &store.argument()]);
    assert!(printed.contains("there is no conversation store"), "{printed}");
    assert!(!store.path().exists());
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
        (&["export", "--store", &argument][..], 0),
        (&["play", &altered, "--store", &argument, "--resume"], 1),
        (&["play", &file, "--store", "memory:"], 0),
    ] {
        let mut child =
            tower_chat(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(code), ""));
    }
}
