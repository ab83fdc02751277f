//! Tests that the examples run without a key, and print the text in their documentation.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the path of the program of an example. Cargo builds the examples of a package before it
/// runs the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    built.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Runs an example in its own process, and returns its output.
fn run_example(name: &str, database: &Path) -> String {
    let mut command = Command::new(example(name));
    // If these variables are not set, the example does not send requests to another machine.
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "OLLAMA_HOST"] {
        command.env_remove(name);
    }
    let output = command.arg(database).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_agent_example_remembers_the_messages_of_an_earlier_process() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("agent.db");
    assert_eq!(
        run_example("openai_chat", &database),
        "remembered 0 messages\n\
         Order 7 is on its way. (You have asked 1 times.)\n\
         40 tokens read, 20 written\n"
    );
    let second = run_example("openai_chat", &database);
    assert_eq!(second.lines().next(), Some("remembered 4 messages"));
    assert!(second.contains("You have asked 2 times."), "{second}");
}

#[test]
fn the_responses_example_stores_the_id_with_which_the_next_process_continues() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("responses.db");
    assert_eq!(
        run_example("openai_responses", &database),
        "a new conversation\n\
         Order 7 is on its way. (You have asked 1 times.)\n\
         40 tokens read, 20 written\n"
    );
    assert_eq!(
        run_example("openai_responses", &database),
        "the service remembers, up to resp_1_told\n\
         Order 7 is on its way. (You have asked 2 times.)\n\
         40 tokens read, 20 written\n"
    );
}

/// Runs an example twice with the same database, and returns both outputs.
fn run_twice(name: &str) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("history.db");
    [run_example(name, &database), run_example(name, &database)]
}

#[test]
fn the_anthropic_example_stores_its_thinking_for_the_next_process() {
    let [first, second] = run_twice("anthropic_thinking");
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
fn the_ollama_example_remembers_the_messages_of_an_earlier_process() {
    let [first, second] = run_twice("ollama");
    assert_eq!(first, "remembered 0 messages\nYou have asked 1 times.\n");
    assert_eq!(second, "remembered 2 messages\nYou have asked 2 times.\n");
}

#[test]
fn a_retry_below_the_persister_needs_one_submission_less_than_a_retry_above() {
    let output = Command::new(example("provider_stack")).output().unwrap();
    let trace = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{trace}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "retry under the persister: Order 7 is on its way.\n  \
         requests: token-1 200, token-2 503, token-3 200\n  \
         4 messages stored by 2 submissions\n\
         retry over the persister: Order 7 is on its way.\n  \
         requests: token-1 200, token-2 503, token-3 200\n  \
         4 messages stored by 3 submissions\n"
    );
    assert!(trace.contains("finished processing request"), "{trace}");
    assert!(!trace.contains("token-"), "{trace}");
}
