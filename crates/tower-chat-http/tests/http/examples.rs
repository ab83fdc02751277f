//! Runs the examples without an API key, and checks that they print the text in their
//! documentation.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

/// Returns the path of the executable of an example. `cargo test` builds the examples of a package
/// before it runs the tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    built.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

#[test]
fn the_http_client_example_remembers_the_first_message_behind_layers_of_tower_http() {
    let output =
        Command::new(example("http_client")).env_remove("OPENAI_API_KEY").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "You said: My name is Alice.\nYou said: My name is Alice. What is my name?\n"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn the_endpoint_example_continues_a_conversation_after_a_graceful_restart() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("endpoint.db");
    for number in [1, 2] {
        let mut server = Command::new(example("endpoint"));
        server.arg("127.0.0.1:0").arg(&database).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut printed = BufReader::new(server.stdout.take().unwrap());
        let mut url = String::new();
        printed.read_line(&mut url).unwrap();

        let body =
            json!({"conversation": "c1", "messages": [{"role": "user", "content": "hello"}]});
        let request = reqwest::Client::new().post(format!("{}/chat/completions", url.trim()));
        let answer = request.body(body.to_string()).send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let content = answer.pointer("/choices/0/message/content");
        assert_eq!(content, Some(&json!(format!("You have said {number} things."))), "{answer}");

        let interrupt = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
        assert!(interrupt.unwrap().success());
        let mut rest = String::new();
        printed.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "closed\n");
        assert!(server.wait().unwrap().success());
    }
}
