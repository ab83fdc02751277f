//! Tests that the program searches in every target, and finds every planted fault.

#![allow(clippy::unwrap_used, reason = "a panic is a failing test")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

fn search(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-chat-fuzz"));
    command.args(arguments).arg("--findings").arg(folder.path());
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn damaged_input_breaks_no_rule_of_any_target() {
    let folder = tempfile::tempdir().unwrap();
    let output = search(&folder, &["--executions", "400", "--slow-executions", "150"]);
    let table = text(&output);
    assert_eq!(output.status.code(), Some(0), "{table}");
    let listed = search(&folder, &["--list"]);
    let names: Vec<String> =
        text(&listed).lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let line = table.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(matches!(numbers[0], 150 | 400), "{line}");
        assert!(numbers[2] > 0, "{line}");
    }
}

/// Checks that a search in a target finds a planted fault, and saves its input.
fn assert_finds(plant: &str, target: &str, more: &[&str], expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&[target, "--plant", plant, "--executions", "3000"], more].concat();
    let output = search(&folder, &arguments);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{plant}: {printed}");
    assert!(printed.contains(&format!("found in {target}: ")), "{plant}: {printed}");
    assert!(printed.contains(expected), "{plant}: {printed}");
    assert!(printed.ends_with("; 1 findings\n"), "{plant}: {printed}");
    let saved = printed.lines().find_map(|line| line.strip_prefix("  input: ")).unwrap();
    assert!(!fs::read(Path::new(saved)).unwrap().is_empty(), "{plant}");
}

#[test]
fn a_panic_is_found() {
    assert_finds("panic", "anthropic-answers", &[], "the planted panic");
}

#[test]
fn the_end_of_the_process_is_found() {
    assert_finds("overflow", "gemini-errors", &[], "the process ended with signal: 6");
}

#[test]
fn a_hang_is_found() {
    assert_finds("hang", "ollama-answers", &["--patience", "20"], "it did not terminate");
}

#[test]
fn time_that_grows_with_the_square_of_the_length_is_found() {
    assert_finds("quadratic", "cohere-streams", &[], " ms for an input of ");
}

#[test]
fn memory_out_of_proportion_to_the_length_is_found() {
    assert_finds("memory", "response-headers", &[], " bytes of memory for an input of ");
}

#[test]
fn a_message_that_changes_when_it_is_stored_is_found() {
    assert_finds(
        "roundtrip",
        "stored-messages",
        &[],
        "a message changes when it is stored and read",
    );
}

#[test]
fn a_stream_that_depends_on_its_pieces_is_found() {
    assert_finds("pieces", "openai-chat-streams", &[], "the stream differs in pieces of");
}

#[test]
fn a_saved_input_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        search(&folder, &["anthropic-answers", "--plant", "panic", "--executions", "3000"]);
    let printed = text(&output);
    let saved = printed.lines().find_map(|line| line.strip_prefix("  input: ")).unwrap();
    let case = saved.rsplit('-').next().unwrap();
    for arguments in [
        &["anthropic-answers", "--plant", "panic", "--case", case][..],
        &["anthropic-answers", "--plant", "panic", "--input", saved],
    ] {
        let again = search(&folder, arguments);
        assert_eq!(again.status.code(), Some(1), "{arguments:?}");
        assert!(text(&again).contains("the planted panic"), "{arguments:?}");
    }
    let without_plant = search(&folder, &["anthropic-answers", "--input", saved]);
    assert_eq!(without_plant.status.code(), Some(0), "{}", text(&without_plant));
}

#[test]
fn an_unknown_target_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = search(&folder, &["no-such-target"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("no target is named like no-such-target"), "{printed}");
}
