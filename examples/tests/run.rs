//! Tests that every example runs and prints the expected output.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_agent_remembers_what_an_earlier_process_received() {
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
fn a_tool_loop_of_other_types_gains_a_history() {
    let printed = output(env!("CARGO_BIN_EXE_own_loop"), &[]);
    assert!(printed.contains("1: Take a coat. You have asked 2 times.\n"), "{printed}");
    assert!(printed.contains("2: Take a coat. You have asked 4 times.\n"), "{printed}");
    assert!(printed.ends_with("stored: 16 messages\n"), "{printed}");
}

#[test]
fn an_adapted_client_gains_a_history() {
    let printed = output(env!("CARGO_BIN_EXE_adapter"), &[]);
    assert!(printed.ends_with("You said: My name is Alice.; What is my name?\n"), "{printed}");
}

#[test]
fn a_wrapper_counts_loads_and_a_new_conversation_needs_none() {
    let printed = output(env!("CARGO_BIN_EXE_counting_store"), &[]);
    assert_eq!(printed, "Messages read: 1. Loads: 0\nMessages read: 3. Loads: 1\n");
}

#[test]
fn a_tool_is_called_again_when_its_result_is_stale_and_a_private_one_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("freshness.db");
    for _repeat in 0..2 {
        let printed = output(env!("CARGO_BIN_EXE_freshness"), &[database.to_str().unwrap()]);
        assert_eq!(
            printed.lines().collect::<Vec<_>>(),
            [
                "minute  0: It rains. Weather calls so far: 1",
                "minute  4: It rains. Weather calls so far: 1",
                "minute 10: It rains. Weather calls so far: 2",
                "this run: Card 4111 1111 1111 1111.",
                "later:    A card that ends in 1111.",
                "stored:   A card that ends in 1111.",
            ]
        );
    }
}
