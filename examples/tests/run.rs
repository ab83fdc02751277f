//! Every example runs, and prints what its documentation says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn output(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    // Without these an example never leaves this machine.
    command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_agent_remembers_what_an_earlier_process_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("agent.db");
    let agent = || output(env!("CARGO_BIN_EXE_agent"), &[database.to_str().unwrap()]);
    let first = agent();
    assert_eq!(first.lines().next(), Some("remembered 0 messages"));
    assert!(first.contains("You have asked 1 times."), "{first}");
    let second = agent();
    assert_eq!(second.lines().next(), Some("remembered 4 messages"));
    assert!(second.contains("You have asked 2 times."), "{second}");
}

#[test]
fn the_hand_made_stack_streams_its_answer_and_saves_the_run() {
    let printed = output(env!("CARGO_BIN_EXE_tower_stack"), &[]);
    assert!(printed.contains("Order 7 is on its way."), "{printed}");
    assert!(printed.contains("messages: 4"), "{printed}");
}

#[test]
fn the_matrix_shows_what_each_row_stores() {
    let printed = output(env!("CARGO_BIN_EXE_matrix"), &[]);
    let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with("  ")).collect();
    let stored: Vec<&str> = rows.iter().map(|row| row.rsplit("  ").next().unwrap()).collect();
    let whole = "user, tool call, tool result, answer";
    let trimmed = "user, tool call";
    let failed = "user, tool call, tool result";
    assert_eq!(
        stored,
        [
            [whole, whole, whole, whole],
            ["nothing", failed, "nothing", failed],
            [trimmed, trimmed, trimmed, trimmed],
        ]
        .concat()
    );
}

#[test]
fn an_adapted_client_gains_a_history() {
    let printed = output(env!("CARGO_BIN_EXE_adapter"), &[]);
    assert!(printed.ends_with("You said: My name is Alice.; What is my name?\n"), "{printed}");
}

#[test]
fn the_openai_agent_remembers_what_an_earlier_process_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("agent.db");
    let agent = || output(env!("CARGO_BIN_EXE_openai_chat"), &[database.to_str().unwrap()]);
    let first = agent();
    assert_eq!(
        first,
        "remembered 0 messages\n\
         Order 7 is on its way. (You have asked 1 times.)\n\
         40 tokens read, 20 written\n"
    );
    let second = agent();
    assert_eq!(second.lines().next(), Some("remembered 4 messages"));
    assert!(second.contains("You have asked 2 times."), "{second}");
}
