//! The examples run without a key, and print what their documentation says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::PathBuf, process::Command};

/// Built beside this test: cargo builds a package's examples before it runs the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    built.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// What two runs with one database print.
fn twice(name: &str) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("history.db");
    [1, 2].map(|_| {
        let mut command = Command::new(example(name));
        // Without these it never leaves this machine.
        command.env_remove("ANTHROPIC_API_KEY").env_remove("OLLAMA_HOST");
        let output = command.arg(&database).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    })
}

#[test]
fn the_agent_on_anthropic_keeps_its_thoughts() {
    let [first, second] = twice("anthropic_thinking");
    assert_eq!(
        first,
        "remembered 0 messages with 0 thoughts\n\
         (thinking: The tool knows.)\n\
         Order 7 is on its way.\n\
         40 tokens read, 20 written\n"
    );
    assert_eq!(second.lines().next(), Some("remembered 4 messages with 1 thoughts"));
}

#[test]
fn the_chat_with_ollama_goes_on() {
    let [first, second] = twice("ollama");
    assert_eq!(first, "remembered 0 messages\nYou have asked 1 times.\n");
    assert_eq!(second, "remembered 2 messages\nYou have asked 2 times.\n");
}
