//! The example runs without a key, and prints what its documentation says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::PathBuf, process::Command};

/// Built beside this test: cargo builds a package's examples before it runs the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    built.join("examples").join(format!("openai_chat{}", std::env::consts::EXE_SUFFIX))
}

#[test]
fn the_agent_remembers_what_an_earlier_process_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("agent.db");
    let agent = || {
        let mut command = Command::new(example());
        // Without these it never leaves this machine.
        command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
        let output = command.arg(&database).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
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
